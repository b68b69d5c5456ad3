"""Shares of the pool, and how far they are from fair ones: the one place that computes them."""

from __future__ import annotations

import numpy as np

from placement.errors import ShapeMismatchError
from placement.model.arrays import FloatArray, IntArray
from placement.model.snapshot import Allocation, Snapshot


def fractions_of_pool(amounts: IntArray, pool: IntArray) -> FloatArray:
    """Return amounts of resources as fractions of the pool; 0 where the pool has nothing.

    Parameters
    ----------
    amounts : ndarray of int64, shape (..., R)
    pool : ndarray of int64, shape (R,)

    Returns
    -------
    ndarray of float64, shape (..., R)
    """
    if amounts.shape[-1:] != pool.shape:
        raise ShapeMismatchError("amounts", amounts.shape, (*amounts.shape[:-1], *pool.shape))
    return np.divide(amounts, pool, out=np.zeros(amounts.shape, dtype=np.float64), where=pool > 0)


def dominant_shares(held: IntArray, pool: IntArray) -> FloatArray:
    """Return the dominant share of every tenant, not weighted.

    Parameters
    ----------
    held : ndarray of int64, shape (N, R)
        Resources held by each tenant.
    pool : ndarray of int64, shape (R,)
        Capacity of all hosts together, same units. A resource of zero capacity
        is ignored.

    Returns
    -------
    ndarray of float64, shape (N,)
        Within [0, 1] whenever ``held`` fits in ``pool``.

    Raises
    ------
    ShapeMismatchError
        If the resource axes differ.

    Notes
    -----
    Computes ``s_i = max_j u_ij / r_j`` of Algorithm 1 in [1]_. The paper's
    user *i* is our tenant.

    References
    ----------
    .. [1] Ghodsi et al., "Dominant Resource Fairness", NSDI 2011.

    Examples
    --------
    The example of [1]_, Section 4.1 (CPUs, GB):

    >>> dominant_shares(np.array([[3, 12], [6, 2]]), np.array([9, 18]))
    array([0.66666667, 0.66666667])
    """
    shares: FloatArray = fractions_of_pool(held, pool).max(axis=1, initial=0.0)
    return shares


def shares_after(snapshot: Snapshot, allocation: Allocation) -> FloatArray:
    """Return the dominant shares once ``allocation`` is committed, shape (N,).

    Held means every unreleased assignment, the pool is the capacity of all
    hosts of the snapshot, open or closed: dominance does not change when hosts
    fill up or tenants come and go.
    """
    return dominant_shares(snapshot.after_placing(allocation.placed).held, snapshot.pool)


def fair_distance(shares: FloatArray, targets: FloatArray) -> float | None:
    """Return how far shares are from fair: mean ``|share - target|`` per mean target, or None.

    None means that no target is above 0.

    Parameters
    ----------
    shares, targets : ndarray of float64, shape (N,)
        Dominant share of each tenant, and the dominant share that would be fair.

    Examples
    --------
    >>> fair_distance(np.array([0.5, 0.3]), np.array([0.4, 0.4]))
    0.25
    """
    total = float(targets.sum())
    return float(np.abs(shares - targets).sum()) / total if total > 0 else None
