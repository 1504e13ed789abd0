"""Horovod's names for Keras and for TensorFlow, as programs of tutorials use them, over the ring of a gang.

Horovod's own modules for Keras do not know Keras 3: its optimizer reduces nothing, without an error, and its callbacks
fail.
"""
