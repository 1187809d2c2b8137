const a = 1;
const b: string = 'unterminated
return a;
