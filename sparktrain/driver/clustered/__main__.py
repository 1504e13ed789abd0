"""Runs a coordinator in the cluster: `python -m sparktrain.driver.clustered AGENT_PID`."""

from sparktrain.driver.clustered.coordinator_main import main

if __name__ == "__main__":
    main()
