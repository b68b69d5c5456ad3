"""/v1/moves and /v1/plans: VMs that move, and plans of moves."""
