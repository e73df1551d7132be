"""Accounting: from a frozen `Mechanism` to a certified epsilon. Knows nothing of training, denoising or audits.

A new accountant is one file in this folder and is found by itself; so is any subclass of `Accountant` elsewhere.
"""

import importlib
import pkgutil

from noisette.account.accountant import guarantee, guarantees
from noisette.account.base import Accountant, accountants
from noisette.account.calibrate import calibrate
from noisette.account.compare import compare
from noisette.account.groups import group_epsilon
from noisette.account.ledger import Ledger, read_ledger
from noisette.account.tradeoff import Tradeoff, tradeoff

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
