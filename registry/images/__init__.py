"""What disks rest on: images, their files, and their copies on hosts."""
