import type { Page } from 'playwright';

enum Level { Low = 1, High }
interface Named { readonly name: string }
abstract class Base<T extends Named> {
  constructor(protected readonly of: T, private count = 0) {}
  bump(): this { this.count++; return this; }
  get told(): string { return `${this.of.name} ${this.count}`; }
}
class Thing extends Base<Named> { #secret?: number = Level.High; get secret() { return this.#secret!; } }
const same: Page = page as unknown as Page;
function over(x: string): string;
function over(x: number): number;
function over(x: any): any { return x; }
const config = { a: 1, b: [2, 3] } satisfies Record<string, unknown>;
return { told: new Thing({ name: 'x' }).bump().bump().told, secret: new Thing({ name: 'y' }).secret, level: Level[1], same: same === page, over: over(4), config };
