"""Validates OpenAPI 3.1 documents. Usage: validate.py FILE…; prints the errors and exits with 1 if there are any."""

import json
import sys

from openapi_spec_validator import OpenAPIV31SpecValidator


def errors(path):
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    if not document["openapi"].startswith("3.1."):
        yield f"the version is {document['openapi']}, not 3.1"
    try:
        for error in OpenAPIV31SpecValidator(document).iter_errors():
            yield f"{'/'.join(map(str, error.absolute_path))}: {error.message[:500]}"
    # A reference that leads nowhere is raised by the resolver, not returned as an error.
    except Exception as error:
        yield f"{type(error).__name__}: {str(error)[:500]}"


found = [f"{path}: {error}" for path in sys.argv[1:] for error in errors(path)]
print("\n".join(found))
sys.exit(bool(found))
