"""A draft for the registry of deployments of differential privacy: YAML in its fields, for people to complete.

The names of the fields are those that OpenDP's registry has had since July 2026; it takes no others. What a run cannot
know is "not stated", and what the registry has no field for is in the notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from noisette._guarantee import PROTECTED
from noisette.app.reports.statement import NOT_STATED, Statement

__all__ = ["registry"]


def registry(statement: Statement) -> str:
    """The statement as an entry of the registry."""
    run, words = statement.run, statement.words
    promise, facts = run.promise, {section.key: dict(section.facts) for section in statement.sections}
    entry: dict[str, Any] = {
        "url_slug": _slug(run.name, words["curator"], run.date[:4]),
        "status": "Draft",
        "tier": 2,  # the third asks for reasons, which only people have
        "deployment": {
            "basic": {
                "name": run.name,
                "data_curators": [words["curator"]],
                "intended_use": words["use"],
                "data_product_type": "Machine learning model",
                "data_product_region": NOT_STATED,
                "description": facts["about"]["Model"],
                "publication_date": run.date,
            },
            "dp_variant": {
                "variant_name": "Approximate DP",
                "data_domain": words["domain"],
                "unprotected_quantities": " ".join(statement.unprotected),
            },
            "privacy_loss": {
                "privacy_unit": "user-level" if run.person else "record-level",
                "privacy_unit_details": f"{promise.adjacency}: {PROTECTED[run.person]}. {statement.together}.",
                "privacy_parameters": {"epsilon": promise.epsilon, "delta": promise.delta},
                "privacy_parameters_details": " ".join(
                    (*statement.cautions, f"{promise.kind} by {promise.accountant}.", *statement.meaning)
                ),
            },
            "deployment_model": {
                "model_name": "Central",
                "model_name_details": facts["promise"]["Trust"],
                "release_type": "One release",
                "release_type_details": facts["promise"]["Release"],
                "data_source_type": "Static",
                "access_type": "Non-interactive",
                "access_type_details": words["access"],
            },
            "accounting": {
                "post_processing": facts["training"]["Post-processing"],
                "composition": facts["spending"]["These people"],
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": facts["spending"]["Tuning"],
                "mechanisms": repr(run.search or run.mechanism),
                "justification": NOT_STATED,
            },
            "administrative": {"notes": "\n".join(_rest(statement)), "registry_authors": [NOT_STATED]},
        },
    }
    told = "".join(f"# CAUTION: {caution}\n" for caution in statement.cautions)
    return told + str(yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=100))


def _slug(*parts: str) -> str:
    """The end of an entry's address, as the registry makes it.

    >>> _slug("A reader of <b>forms", "The Institute", "2026")
    'a-reader-of-b-forms-the-institute-2026'
    """
    return re.sub(r"[\W_]+", "-", " ".join(parts).lower()).strip("-")


def _rest(statement: Statement) -> Iterator[str]:
    """Facts that the registry has no field for, one a line."""
    for key in ("data", "training", "evidence"):
        yield from (f"{label}: {value}" for label, value in statement.section(key).facts)
    for alarms, found in statement.tests:
        yield f"Best membership test with {alarms} false alarms: finds at most {found}"
