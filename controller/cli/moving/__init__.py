"""Commands about VMs that move and plans of moves."""
