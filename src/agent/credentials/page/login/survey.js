// A view of the document, which all rules share: its fields, controls and texts, and the part of it
// that is the step of a login.

// The longest text of a step. A page with more is an article or an application, of which only the
// part around the fields of a login counts.
const MAX_STEP_TEXT = 2000;
const DIALOG = 'dialog[open], [role=dialog], [role=alertdialog], [aria-modal=true]';
const MAIN = 'main, [role=main]';

// The fields of a document, also those that something is in front of, such as a banner.
class DrawnMatcher extends Matcher {
  isShown(field) {
    return field.isDrawn;
  }
}

class Survey {
  constructor() {
    this.matcher = new DrawnMatcher({ specs: [], policy: null });
    this.controls = collectControls(this.matcher);
    this.allBlocks = collectBlocks();
    this.banner = findBanner(this);
    const inBanner = ({ element }) =>
      this.banner !== null && isWithin(element, this.banner.container);
    this.blocks = this.allBlocks.filter((block) => !inBanner(block));
    this.headings = findAll('h1, h2, h3, legend, [role=heading]').filter(isDrawn);
    this.title = titleOf(document);
    this.words = normalize(this.title) + pathWords() + this.textOf(this.blocks);
    this.loginGroups = chooseGroups(this);
    const isChange = (group) => isPasswordChange(group, this.words, this.controls);
    this.changes = this.loginGroups.filter(isChange);
    this.scope = this.findScope();
    this.step = this.scope ? this.within(this.scope) : [];
    this.stepText = toWords(joined(this.step));
    const headings = this.headings.filter((heading) => this.scope && isWithin(heading, this.scope));
    this.headline = [this.title, ...headings.map(textContentOf)].map(normalize).join('');
    this.stepControls = this.controls.filter(
      (control) => this.isInStep(control) && !inBanner(control) && control.isShown,
    );
  }

  // Returns the words of blocks, if they are not more than those of a step.
  textOf(blocks) {
    return lengthOf(blocks) <= MAX_STEP_TEXT ? toWords(joined(blocks)) : '';
  }

  within(element) {
    return this.blocks.filter((block) => isWithin(block.element, element));
  }

  isInStep({ element, isInPageFrame }) {
    return this.scope !== null && isWithin(element, this.scope) && !isInPageFrame;
  }

  // Whether the text of the step, its headings or the title have one of the meanings.
  says(...meanings) {
    const text = this.headline + this.stepText;
    return meanings.some((meaning) => means(text, meaning));
  }

  // Whether the page shows itself to be about a login.
  get isAboutLogin() {
    return (
      this.loginGroups.length > 0 || this.says('login', 'proof') || means(pathWords(), 'login')
    );
  }

  // Whether the page is about a login, or about what follows one.
  get isAboutStep() {
    return this.isAboutLogin || this.says('byPasskey', 'remember', 'passwordChange');
  }

  // Returns the part of the page that is the step of a login, or null if there is none.
  findScope() {
    const body = bodyOf(document);
    if (!body) return null;
    const [group] = this.loginGroups;
    if (!group) {
      const [dialog] = findAll(DIALOG).filter((one) => isDrawn(one) && !this.isBanner(one));
      const [main] = findAll(MAIN).filter(isDrawn);
      const candidates = [dialog, body, main].filter(Boolean);
      return candidates.find((one) => this.isShort(one)) ?? null;
    }
    const isWhole = group.key === documentElementOf(document);
    const [field] = group.fields;
    let scope = isWhole ? (composedParent(field.element) ?? body) : group.key;
    while (scope !== body && !matchesAny(scope, DIALOG)) {
      const around = composedParent(scope);
      if (!around || !this.isShort(around)) break;
      scope = around;
    }
    return scope;
  }

  isBanner(element) {
    const container = this.banner?.container;
    return Boolean(container) && (isWithin(container, element) || isWithin(element, container));
  }

  isShort(element) {
    return lengthOf(this.within(element)) <= MAX_STEP_TEXT;
  }
}

const pathWords = () => normalize(location.pathname);
