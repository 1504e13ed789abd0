#!/usr/bin/bash
# Runs before a pod of an executor ends, where spark.decommission.enabled is true: Spark names this path by default.
# The executor, which is process 1, is asked to leave, and this waits until it has left, or the pod's time is over.
kill -s SIGPWR 1
exec tail --pid=1 --follow /dev/null
