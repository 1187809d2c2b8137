// Classes that can be extended and constructed, but do not transfer data: Playwright streams only to and from remote servers.
import { EventEmitter } from 'events';

const refuse = () => {
  throw new Error('streams are not available in a script');
};

class Stream extends EventEmitter {
  pipe = refuse;
  destroy() {
    return this;
  }
}
class Readable extends Stream {
  push() {
    return true;
  }
}
class Writable extends Stream {
  write() {
    return true;
  }
  end() {}
}
class Duplex extends Readable {}

export = Object.assign(Stream, {
  Stream,
  Readable,
  Writable,
  Duplex,
  Transform: class extends Duplex {},
  PassThrough: class extends Duplex {},
  pipeline: refuse,
  promises: { pipeline: async () => refuse() },
});
