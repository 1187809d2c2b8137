// The calls of the agent. `request` has `specs`, the names and kinds of the values, and `policy`.

const filler = {
  // Returns the outcome that each value would have in this frame, if it is permitted. Scrolls, and
  // changes nothing.
  inspect(request) {
    const isInvalid = ({ selector }) => selector && !isValidSelector(selector);
    const invalid = request.specs.filter(isInvalid).map(({ name }) => name);
    if (invalid.length > 0) return { permitted: false, invalid, fields: [] };
    if (!isPermittedFrame(request.policy)) return { permitted: false, invalid, fields: [] };
    const outcomes = new Matcher(request).match();
    return { permitted: true, invalid, fields: toList(request, outcomes) };
  },

  // Writes the values, by their names, and submits their form. All evidence is collected anew.
  write(request, values, submits) {
    const refused = { written: false, submitted: false };
    if (!isPermittedFrame(request.policy)) return { ...refused, permitted: false, fields: [] };
    const matcher = new Matcher(request);
    const outcomes = matcher.match();
    const fields = toList(request, outcomes);
    if (fields.some(({ outcome }) => outcome === 'ambiguous')) {
      return { ...refused, permitted: true, fields };
    }
    masks.watchAll();
    const written = [];
    const position = ({ name }) => matcher.fields.indexOf(outcomes.get(name).fields[0]);
    const matched = fields.filter(({ outcome }) => outcome === 'match');
    for (const field of matched.sort((a, b) => position(a) - position(b))) {
      const result = writeValue(request, field.name, values[field.name]);
      field.outcome = result.outcome;
      written.push(result);
    }
    const isComplete = written.length > 0 && written.every(({ outcome }) => outcome === 'filled');
    const isDue = submits === 'any' || (submits === 'all' && written.length === fields.length);
    const submitted = isComplete && isDue && submit(request, written.at(-1).element);
    return { permitted: true, written: written.length > 0, fields, submitted };
  },

  adopt,

  isDrawn,
};

function toList({ specs }, outcomes) {
  return specs.map(({ name }) => ({ name, outcome: outcomes.get(name).outcome }));
}

function isValidSelector(selector) {
  try {
    Document.prototype.createElement.call(document, 'div').matches(selector);
    return true;
  } catch {
    return false;
  }
}
