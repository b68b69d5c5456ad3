"""Weights that flatten a tree of tenants, as pure functions of tree and demands."""

from __future__ import annotations

from typing import Final

import numpy as np

from placement.mechanisms.max_min.levels import normalised_demands
from placement.model.arrays import BoolArray, FloatArray
from placement.model.tenant_tree import TenantTree

#: Weights of a deep tree could underflow; none is smaller, so that none is 0.
MIN_WEIGHT: Final = 1e-150


class Flattening:
    """A tree prepared for repeated flattening as leaves become active or inactive.

    Parameters
    ----------
    tree : TenantTree
    shape : ndarray, shape (N, R)
        Normalised demands: one task over the pool, its largest component 1.
    """

    def __init__(self, tree: TenantTree, shape: FloatArray) -> None:
        self._shape = shape
        self._leaf = np.array(tree.leaf, dtype=np.int64)
        self._parent = np.array(tree.parent, dtype=np.int64)
        self._weight = tree.weight
        self._layers = tree.nodes_by_depth()[1:]

    def product_weights(self, active: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return the product weight of each active leaf of the tree, and the root's vector.

        Parameters
        ----------
        active : ndarray, shape (N,)

        Returns
        -------
        weights : ndarray, shape (N,)
            ``omega_leaf * prod omega_P / mu_P`` over the ancestors P below the
            root; 1 for leaves that are not active.
        root : ndarray, shape (R,)
            What the root's children take of each resource when they stand at
            equal shares per weight.
        """
        vector = np.zeros((len(self._parent), self._shape.shape[1]))
        demanding = active & (self._shape > 0).any(axis=1)
        vector[self._leaf[demanding]] = self._shape[demanding]
        # Siblings' weights count relative to the largest of the active ones: no
        # leaf's weight changes by it (mu_P follows), and mu_P is at least 1.
        largest = self._largest_active_child(demanding)
        below = self._parent > 0
        omega = self._weight.copy()
        omega[below] = np.minimum(omega[below] / largest[self._parent[below]], 1.0)
        weight = omega.copy()
        inner = np.ones(len(omega), dtype=np.bool_)
        inner[self._leaf] = False
        for layer in reversed(self._layers):
            mu = vector[layer].max(axis=1, initial=0.0)
            mu[mu == 0] = 1.0
            weight[layer] /= np.where(inner[layer], mu, 1.0)
            vector[layer] /= mu[:, None]
            np.add.at(vector, self._parent[layer], omega[layer, None] * vector[layer])
        for layer in self._layers[1:]:
            weight[layer] *= weight[self._parent[layer]]
        weights = np.where(demanding, np.maximum(weight[self._leaf], MIN_WEIGHT), 1.0)
        return weights, vector[0]

    def normal_weights(self, active: BoolArray) -> FloatArray:
        """Return each leaf's path product of ``omega`` over the siblings' sum, shape (N,).

        That sum is of the active siblings. A node is active if a leaf below it is.

        A node is active if a leaf below it is.
        """
        return self._path_products(self._weight / self._active_sums(active)[self._parent])

    def plain_weights(self) -> FloatArray:
        """Return the product of the weights along each leaf's path in the tree, shape (N,)."""
        return self._path_products(self._weight)

    def _path_products(self, factor: FloatArray) -> FloatArray:
        """Return the product of a factor of each node along the path of every leaf, (N,)."""
        product = factor.copy()
        product[0] = 1.0
        with np.errstate(over="ignore"):
            for layer in self._layers:
                product[layer] *= product[self._parent[layer]]
        return np.clip(product[self._leaf], MIN_WEIGHT, 1 / MIN_WEIGHT)

    def _active_nodes(self, active: BoolArray) -> BoolArray:
        """Return which nodes of the tree are active leaves or have one below them."""
        alive = np.zeros(len(self._parent), dtype=np.bool_)
        alive[self._leaf[active]] = True
        for layer in reversed(self._layers):
            np.logical_or.at(alive, self._parent[layer], alive[layer])
        return alive

    def _active_sums(self, active: BoolArray) -> FloatArray:
        """Return the sum of the weights of each node's active children; 1 without any."""
        alive = self._active_nodes(active)
        sums = np.zeros(len(self._parent))
        alive[0] = False
        np.add.at(sums, self._parent[alive], self._weight[alive])
        return np.where(sums > 0, sums, 1.0)

    def _largest_active_child(self, active: BoolArray) -> FloatArray:
        """Return the largest weight of each node's active children; 1 without any."""
        alive = self._active_nodes(active)
        largest = np.zeros(len(self._parent))
        alive[0] = False
        np.maximum.at(largest, self._parent[alive], self._weight[alive])
        return np.where(largest > 0, largest, 1.0)


def mch_weights(
    tree: TenantTree, demand: FloatArray, capacity: FloatArray, active: BoolArray
) -> FloatArray:
    """Return the weights of the flat tree that MCH makes of a tree.

    Parameters
    ----------
    tree : TenantTree
    demand : ndarray, shape (N, R)
        One task of each tenant.
    capacity : ndarray, shape (R,)
        Of the pool.
    active : ndarray of bool, shape (N,)
        Which leaves have tasks to run.

    Returns
    -------
    ndarray, shape (N,)
        For a leaf that demands the resource k* that saturates first
        ``omega_leaf * prod omega_P / mu_P`` over its ancestors P below the
        root; 1 for every other leaf.

    Notes
    -----
    MCH of [1]_. Bottom-up, a node P has ``v = sum omega_c s_c`` over its active
    children, ``mu_P = max v`` and ``s_P = v / mu_P``; a leaf's s is its demand
    over the pool, normalised alike. k* is the largest component of the root's v;
    ties go to the first.

    References
    ----------
    .. [1] "Low Complexity Hierarchical Scheduling for Diverse Datacenter Jobs",
       IEEE Communications Letters, 2019.

    Examples
    --------
    Three groups in 200 CPUs and 200 GB: a CPU and a memory job; two CPU jobs
    and a memory job; a CPU job:

    >>> tree = TenantTree(
    ...     parent=(-1, 0, 0, 0, 1, 1, 2, 2, 2, 3),
    ...     weight=np.ones(10),
    ...     leaf=(4, 5, 6, 7, 8, 9),
    ... )
    >>> cpu, memory = (1.0, 0.0), (0.0, 1.0)
    >>> demand = np.array([cpu, memory, cpu, cpu, memory, cpu])
    >>> mch_weights(tree, demand, np.array([200.0, 200.0]), np.ones(6, dtype=bool))
    array([1. , 1. , 0.5, 0.5, 1. , 1. ])
    """
    shape, _ = normalised_demands(demand, capacity)
    weights, root = Flattening(tree, shape).product_weights(active)
    first = int(np.argmax(root))
    return np.where(shape[:, first] > 0, weights, 1.0)


def collapsed_weights(
    tree: TenantTree, demand: FloatArray, capacity: FloatArray, active: BoolArray, resource: int
) -> FloatArray:
    """Return the weights of a tree collapsed by one resource, shape (N,).

    For a leaf that demands the resource the product along its path of ``omega``
    over the sum of ``omega`` of the active siblings, where an active node leads
    to an active leaf that demands it; for any other leaf the plain product of
    ``omega``.

    Notes
    -----
    The names C-CH and M-CH (collapsed by CPU, by memory) are of [1]_, this
    reading of them is derived.

    References
    ----------
    .. [1] "Low Complexity Hierarchical Scheduling for Diverse Datacenter Jobs",
       IEEE Communications Letters, 2019.
    """
    shape, _ = normalised_demands(demand, capacity)
    flattening = Flattening(tree, shape)
    counted = active & (shape[:, resource] > 0)
    return np.where(counted, flattening.normal_weights(counted), flattening.plain_weights())
