"""The modules and names of TensorFlowOnSpark, for programs that were written for it: a program changes its imports."""
