"""What a sweep would cost with other slots or another stopper: recorded curves, and the state machine of real runs."""
