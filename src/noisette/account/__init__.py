"""Accounting: from a frozen `Mechanism` to a certified epsilon. Knows nothing of training, denoising or audits."""

from noisette.account.accountant import ACCOUNTANTS, guarantee, guarantees
from noisette.account.calibrate import calibrate
from noisette.account.compare import compare
from noisette.account.ledger import Ledger, read_ledger
from noisette.account.tradeoff import Tradeoff, tradeoff

__all__ = [
    "ACCOUNTANTS",
    "Ledger",
    "Tradeoff",
    "calibrate",
    "compare",
    "guarantee",
    "guarantees",
    "read_ledger",
    "tradeoff",
]
