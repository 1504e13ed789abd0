"""The Kerberos ticket of this process, read with the system library that its HDFS clients also use."""

import ctypes
from ctypes import POINTER, byref, c_int, c_size_t, c_uint32, c_void_p

from msgspec import Struct

LIBRARY = "libgssapi_krb5.so.2"
"""MIT Kerberos, which Hadoop's clients load too."""
_INDEFINITE = 2**32 - 1
_INITIATE = 1
_OUT = POINTER(c_void_p)
_STATUS = POINTER(c_uint32)


class Ticket(Struct, frozen=True):
    """A ticket of this process, which may have expired."""

    principal: str
    left_s: float


class _Buffer(ctypes.Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))


def ticket(library_name: str = LIBRARY) -> Ticket | None:
    """The ticket of this process; None without a ticket or without the Kerberos library. Blocks for a local file."""
    try:
        library = _library(library_name)
    except OSError:
        return None
    minor = c_uint32()
    held = c_void_p()
    name = c_void_p()
    lifetime = c_uint32()
    text = _Buffer()
    try:
        arguments = (None, _INDEFINITE, None, _INITIATE, byref(held), None, None)
        if library.gss_acquire_cred(byref(minor), *arguments):
            return None
        if library.gss_inquire_cred(byref(minor), held, byref(name), byref(lifetime), None, None):
            return None
        if library.gss_display_name(byref(minor), name, byref(text), None):
            return None
        return Ticket(ctypes.string_at(text.value or 0, text.length).decode(), float(lifetime.value))
    finally:
        library.gss_release_buffer(byref(minor), byref(text))
        library.gss_release_name(byref(minor), byref(name))
        library.gss_release_cred(byref(minor), byref(held))


def _library(name: str) -> ctypes.CDLL:
    library = ctypes.CDLL(name)
    buffer = POINTER(_Buffer)
    library.gss_acquire_cred.argtypes = (_STATUS, c_void_p, c_uint32, c_void_p, c_int, _OUT, _OUT, _STATUS)
    library.gss_inquire_cred.argtypes = (_STATUS, c_void_p, _OUT, _STATUS, POINTER(c_int), _OUT)
    library.gss_display_name.argtypes = (_STATUS, c_void_p, buffer, _OUT)
    library.gss_release_buffer.argtypes = (_STATUS, buffer)
    library.gss_release_name.argtypes = library.gss_release_cred.argtypes = (_STATUS, _OUT)
    return library
