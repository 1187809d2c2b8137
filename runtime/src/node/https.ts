export { Agent, request } from './http.ts';
