"""Accounting: from a frozen `Mechanism` to a certified epsilon. Knows nothing of training, denoising or audits.

A new accountant is one file in this folder and is found by itself; so is any subclass of `Accountant` elsewhere.
"""

import importlib
import pkgutil

from noisette.accounting.account import guarantee, guarantees
from noisette.accounting.base import Accountant, accountants
from noisette.accounting.calibrate import calibrate
from noisette.accounting.compare import compare
from noisette.accounting.groups import group_epsilon
from noisette.accounting.ledger import Ledger, read_ledger
from noisette.accounting.tradeoff import Tradeoff, tradeoff

for _module in pkgutil.iter_modules(__path__, __name__ + "."):
    importlib.import_module(_module.name)

__all__ = [
    "Accountant",
    "Ledger",
    "Tradeoff",
    "accountants",
    "calibrate",
    "compare",
    "group_epsilon",
    "guarantee",
    "guarantees",
    "read_ledger",
    "tradeoff",
]
