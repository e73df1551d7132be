"""A draft for the registry of deployments of differential privacy: YAML in its fields, for people to complete.

The names of the fields are those of OpenDP's registry, which changes them now and then. What a run cannot know is "not
stated", and what the registry has no field for is in its additional information.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from noisette.report.statement import NOT_STATED, Statement

__all__ = ["registry"]


def registry(statement: Statement) -> str:
    """The statement as an entry of the registry."""
    run, words = statement.run, statement.words
    promise, facts = run.promise, {section.key: dict(section.facts) for section in statement.sections}
    entry: dict[str, Any] = {
        "status": "Draft",
        "deployment": {
            "product": {
                "name": run.name,
                "data_curators": [words["curator"]],
                "intended_use": words["use"],
                "data_product_type": "Machine learning model",
                "data_product_region": NOT_STATED,
                "description": facts["about"]["Model"],
                "publication_date": run.date,
            },
            "dp_flavor": {
                "name": "Approximate DP",
                "input_metric": f"symmetric distance between sets of {'people' if run.person else 'examples'}",
                "bound_on_input_distance": "1",
                "output_measure": "hockey-stick divergence",
                "bound_on_output_distance": f"epsilon {promise.epsilon!r}, delta {promise.delta!r}",
                "data_domain": words["domain"],
                "unprotected_quantities": " ".join(statement.unprotected),
            },
            "privacy_loss": {
                "privacy_unit": "user-level" if run.person else "record-level",
                "privacy_unit_description": promise.adjacency,
                "privacy_parameters": {"epsilon": promise.epsilon, "delta": promise.delta},
                "privacy_parameters_description": " ".join(
                    (*statement.cautions, f"{promise.kind} by {promise.accountant}.", *statement.meaning)
                ),
            },
            "model": {
                "model_name": "Central",
                "model_name_description": facts["promise"]["Trust"],
                "release_type": "One release",
                "release_type_description": facts["promise"]["Release"],
                "data_source_type": "Static",
                "access_type": "Non-interactive",
                "access_type_description": words["access"],
            },
            "accounting": {
                "post_processing": facts["training"]["Post-processing"],
                "composition": facts["spending"]["These people"],
            },
            "implementation": {
                "pre_processing_eda_hyperparameter_tuning": facts["spending"]["Tuning"],
                "mechanisms": repr(run.search or run.mechanism),
                "justification": NOT_STATED,
            },
            "additional_information": "\n".join(_rest(statement)),
        },
    }
    told = "".join(f"# CAUTION: {caution}\n" for caution in statement.cautions)
    return told + str(yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=100))


def _rest(statement: Statement) -> Iterator[str]:
    """Facts that the registry has no field for, one a line."""
    for key in ("data", "training", "evidence"):
        yield from (f"{label}: {value}" for label, value in statement.section(key).facts)
    for alarms, found in statement.tests:
        yield f"Best membership test with {alarms} false alarms: finds at most {found}"
