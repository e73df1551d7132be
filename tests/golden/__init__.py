"""The golden freeze: what no change of names, files or speed may move, as it was when it was frozen."""
