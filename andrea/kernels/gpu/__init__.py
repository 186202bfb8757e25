"""The operations by hand, in Triton, for a GPU: one page each, beside the page of the same name above that has formula and reference.

Every direction is a torch operator of its own, with a rule for shapes and one for the gradient, so that it runs under torch.compile as it
does without. Importing a page imports Triton; this file imports nothing.
"""
