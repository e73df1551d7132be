"""Accounting: from a frozen `Mechanism` to a certified epsilon. Knows nothing of training, denoising or audits."""
