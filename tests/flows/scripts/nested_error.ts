type Wanted = { name: string };

class Finder {
  async find(wanted: Wanted): Promise<never> {
    await page.title();
    throw new RangeError(`no ${wanted.name}`, { cause: new Error('because') });
  }
}

await new Finder().find({ name: 'thing' });
