export const EOL = '\n';
export const arch = () => 'x64';
export const cpus = () => [];
export const homedir = () => process.cwd();
export const hostname = () => 'localhost';
export const platform = () => 'linux';
export const release = () => '6';
export const tmpdir = () => process.cwd();
export const type = () => 'Linux';
