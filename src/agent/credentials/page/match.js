// Which field belongs to which value.

// The evidence for a field, from the best. Two fields with the same evidence are ambiguous.
const RANK = {
  ownToken: 10,
  ownType: 15,
  ownWords: 20,
  otherToken: 25,
  otherType: 30,
  otherWords: 35,
  position: 40,
};

// The identifiers of an account, and as which others each of them may serve.
const IDENTIFIERS = {
  username: { tokens: ['username'], types: [], words: 'identifier', others: ['email', 'phone'] },
  email: { tokens: ['email'], types: ['email'], words: 'email', others: ['username'] },
  phone: { tokens: ['tel', 'tel-national'], types: ['tel'], words: 'phone', others: [] },
};
// The kinds of groups whose fields get values by their meaning.
const LOGIN_KINDS = new Set(['login', 'code', 'other']);

const NOT_FOUND = { outcome: 'not_found' };

const hasToken = (field, kind) => IDENTIFIERS[kind].tokens.some((token) => field.tokens.has(token));
const hasType = (field, kind) => IDENTIFIERS[kind].types.includes(field.type);
const hasWords = (field, kind) => means(field.text, IDENTIFIERS[kind].words);
const isDecoy = (field) => means(field.text, 'honeypot');

// Returns the rank of a field for an identifier, or null if it is none.
function identifierRank(field, kind) {
  if (isDecoy(field) || field.type === 'search' || mayBePassword(field)) return null;
  if (!isFor(field, 'identifier')) return null;
  if (hasToken(field, kind)) return RANK.ownToken;
  if (mayBeCode(field) || isOther(field)) return null;
  if (hasType(field, kind)) return RANK.ownType;
  if (hasWords(field, kind)) return RANK.ownWords;
  const { others } = IDENTIFIERS[kind];
  if (others.some((other) => hasToken(field, other))) return RANK.otherToken;
  if (others.some((other) => hasType(field, other))) return RANK.otherType;
  if (others.some((other) => hasWords(field, other))) return RANK.otherWords;
  return null;
}

// Whether a field is the only one beside the password of its form, hidden ones included, and before
// it.
function isBeforePassword(field) {
  const { fields, fixed } = field.group;
  const others = [...fields, ...fixed].filter((other) => !isPassword(other));
  const password = fields.findIndex((other) => isPassword(other) && other.isDrawn);
  const isPlain =
    isFor(field, 'identifier') && !mayBeCode(field) && !isOther(field) && !isDecoy(field);
  const isFirst = others.length === 1 && fields.indexOf(field) < password;
  return isPlain && isFirst && field.type !== 'search';
}

function passwordRank(field) {
  if (isDecoy(field) || isNewPassword(field) || !isPassword(field)) return null;
  if (field.tokens.has('current-password')) return RANK.ownToken;
  return field.type === 'password' ? RANK.ownType : RANK.ownWords;
}

function codeRank(field) {
  if (isDecoy(field) || field.element.maxLength === 1 || !isCode(field)) return null;
  return field.tokens.has('one-time-code') ? RANK.ownToken : RANK.ownWords;
}

function namedRank(field, name) {
  if (isDecoy(field)) return null;
  if (field.name === name) return RANK.ownToken;
  if (field.id === name) return RANK.ownType;
  return field.label === name ? RANK.ownWords : null;
}

// The fields of a document, and those that were matched with values.
class Matcher {
  constructor({ specs, policy }) {
    this.specs = specs;
    this.policy = policy;
    this.shown = new Map();
    this.taken = new Set();
    this.groups = groupFields(collect(), (field) => this.isShown(field));
    this.fields = this.groups.flatMap((group) => group.fields);
    this.login = this.groups.filter((group) => LOGIN_KINDS.has(group.kind));
  }

  // Whether a user sees a field: nothing is in front of it.
  isShown(field) {
    if (!this.shown.has(field)) {
      this.shown.set(field, field.isDrawn && isReachable(field.element));
    }
    return this.shown.get(field);
  }

  // Returns for each value the outcome, and the fields if it is `match`.
  match() {
    const outcomes = new Map();
    const selected = this.specs.filter((spec) => spec.selector);
    for (const spec of selected) outcomes.set(spec.name, this.matchSelector(spec));
    const chosen = [...outcomes.values()].flatMap((outcome) => outcome.fields ?? []);
    // The groups that selectors name are the only ones; without selectors all may have fields.
    const anchors = [...new Set(chosen.map((field) => field.group))];
    if (selected.length > 0) this.login = anchors;
    this.passwords = this.withShown(passwordRank);
    this.codes = this.withCodes();
    this.anchors = [anchors, this.passwords, this.codes].find((groups) => groups.length > 0) ?? [];
    const others = this.specs.filter((spec) => !spec.selector);
    for (const { name, kind, length } of others) {
      if (kind === 'password') outcomes.set(name, this.matchPassword());
      if (kind === 'code') outcomes.set(name, this.matchCode(length));
    }
    // Each identifier gets its own field before another one may use it.
    const identifiers = others.filter(({ kind }) => kind in IDENTIFIERS);
    for (const maxRank of [RANK.ownWords, RANK.position]) {
      for (const { name, kind } of identifiers) {
        const { outcome } = outcomes.get(name) ?? NOT_FOUND;
        if (outcome !== 'not_found' && outcome !== 'hidden') continue;
        outcomes.set(name, this.matchIdentifier(kind, maxRank));
      }
    }
    for (const { name, kind } of others) {
      if (kind === 'other') outcomes.set(name, this.matchName(normalize(name)));
    }
    return outcomes;
  }

  // Returns the groups with a field of a rank that a user sees.
  withShown(rank) {
    return this.login.filter((group) =>
      group.fields.some((field) => rank(field) !== null && this.isShown(field)),
    );
  }

  withCodes() {
    const isWhole = (group) => group.splitCode?.every((field) => this.isShown(field));
    const single = new Set(this.withShown(codeRank));
    return this.login.filter((group) => isWhole(group) || single.has(group));
  }

  matchSelector({ selector, kind, length }) {
    const found = this.fields.filter(
      (field) => TEXT_TYPES.has(field.type) && field.element.matches(selector),
    );
    const cells = found.length === 1 ? found[0].group.splitCode : null;
    if (kind === 'code' && cells?.[0] === found[0]) return this.matchCells(cells, length);
    return this.choose(found.map((field) => ({ field, rank: 0 })));
  }

  matchPassword() {
    const preferred = this.passwords.filter((group) => this.anchors.includes(group));
    const groups = preferred.length > 0 ? preferred : this.passwords;
    if (groups.length > 1) return { outcome: 'ambiguous' };
    return this.choose(this.ranked(groups.length > 0 ? groups : this.login, passwordRank));
  }

  matchCode(length) {
    const preferred = this.codes.filter((group) => this.anchors.includes(group));
    const groups = preferred.length > 0 ? preferred : this.codes;
    if (groups.length > 1) return { outcome: 'ambiguous' };
    const [group] = groups;
    if (!group) return this.choose(this.ranked(this.login, codeRank));
    const single = this.choose(this.ranked([group], codeRank));
    if (single.outcome === 'match' || single.outcome === 'ambiguous' || !group.splitCode) {
      return single;
    }
    return this.matchCells(group.splitCode, length);
  }

  // Takes the fields of a split code, if they are as many as its characters.
  matchCells(cells, length) {
    const isWhole = cells.length === length && cells.every((field) => this.isShown(field));
    return isWhole ? this.take(cells) : NOT_FOUND;
  }

  matchIdentifier(kind, maxRank) {
    const rank = (field) => {
      const known = identifierRank(field, kind);
      return known !== null && known <= maxRank ? known : null;
    };
    if (this.anchors.length > 1) return this.ambiguousIn(this.anchors, rank);
    const [anchor] = this.anchors;
    if (anchor) {
      const mayBePosition = kind !== 'phone' && maxRank >= RANK.position;
      const byPosition = (field) =>
        rank(field) ?? (mayBePosition && isBeforePassword(field) ? RANK.position : null);
      return this.choose(this.ranked([anchor], byPosition));
    }
    // A step that asks for the identifier alone. The groups that most show to be for a login count.
    const groups = this.login.filter((group) => group.fields.some((field) => rank(field) !== null));
    const strengths = groups.map((group) => this.strengthOf(group));
    const best = Math.max(0, ...strengths);
    const strongest = groups.filter((_, index) => best > 0 && strengths[index] === best);
    const shown = strongest.filter((group) =>
      group.fields.some((field) => rank(field) !== null && this.isShown(field)),
    );
    if (shown.length > 1) return { outcome: 'ambiguous' };
    return this.choose(this.ranked(shown.length > 0 ? shown : strongest, rank));
  }

  ambiguousIn(groups, rank) {
    const isFound = this.ranked(groups, rank).some(({ field }) => this.isShown(field));
    return { outcome: isFound ? 'ambiguous' : 'not_found' };
  }

  // Returns how much a group without a password shows that it is for a login.
  strengthOf(group) {
    const isIdentifier = (field) =>
      identifierRank(field, 'username') !== null &&
      (hasToken(field, 'username') || hasWords(field, 'username'));
    const own = evidenceOf(group).slice(0, 3);
    if (own.some((text) => means(text, 'login')) || group.fields.some(isIdentifier)) return 2;
    return group.isLogin && means(own[0], 'next') ? 1 : 0;
  }

  matchName(name) {
    const groups = this.anchors.length > 0 ? this.anchors : this.login;
    return this.choose(this.ranked(groups, (field) => namedRank(field, name)));
  }

  ranked(groups, rank) {
    const fields = groups.flatMap((group) => group.fields);
    return fields
      .map((field) => ({ field, rank: rank(field) }))
      .filter((candidate) => candidate.rank !== null);
  }

  // Chooses the field of the best rank that a user sees and that has no other value.
  choose(candidates) {
    const free = candidates.filter(({ field }) => !this.taken.has(field));
    const ranks = [...new Set(free.map(({ rank }) => rank))].sort((a, b) => a - b);
    for (const rank of ranks) {
      const equal = free.filter((candidate) => candidate.rank === rank);
      const shown = equal.filter(({ field }) => this.isShown(field));
      if (shown.length > 1) return { outcome: 'ambiguous' };
      if (shown.length === 1) return this.take([shown[0].field]);
    }
    return { outcome: free.length > 0 ? 'hidden' : 'not_found' };
  }

  take(fields) {
    const { form, buttons } = fields[0].group;
    if (!hasPermittedTarget(form, buttons, this.policy)) return { outcome: 'refused_origin' };
    for (const field of fields) this.taken.add(field);
    return { outcome: 'match', fields };
  }
}
