"""Infrastructure managers: Celery workers that create, switch and delete VMs, idempotently."""
