"""Infrastructure managers: Celery workers that create and delete VMs, and may do so twice."""
