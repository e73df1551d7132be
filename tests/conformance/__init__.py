"""Checks that run over every registered class: a new noise, encoder or profile family is picked up unasked."""
