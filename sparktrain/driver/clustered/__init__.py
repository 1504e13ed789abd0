"""A run with its coordinator in the cluster: the client's side, and the process of the coordinator.

The client checks the call, takes the name of the run, stores what the call asks for, and submits the agents
(`cluster_launch`). An agent starts `python -m sparktrain.driver.clustered`, which is a driver without Spark
(`coordinator_main`): it adopts the agents that come, and writes how the call ends into the folder of the call.
"""
