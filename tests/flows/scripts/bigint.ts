return { list: [1, { big: 10n }] };
