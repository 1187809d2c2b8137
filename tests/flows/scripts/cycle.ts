const a: any = { b: [{}] };
a.b[0].c = a;
return a;
