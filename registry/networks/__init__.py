"""What VMs are attached to: networks, who may use them, and the addresses of guests."""
