"""Runs in a process that `multiprocessing` spawns in a trial, in place of the user's script: it gets the same names.

Python runs it under the name `__mp_main__`, and keeps what it has then as the `__main__` of the process.
"""

import os

from sparktrain.protocol import sent_script
from sparktrain.training import script_loading

sent_script.adopt(globals())
script_loading.load(os.environ[sent_script.FILE_KEY], by_reference=False)
