# Types of C for bucket_loop.py, where it is compiled.
cimport cython

cdef long long _NO_HOST

cdef class BucketFill:
    cdef Py_ssize_t _resources, _shapes, _classes, _demands, _buckets, _entries, _unused
    cdef dict _ids
    cdef long long[::1] _vector, _reference, _first_size, _size, _demand, _demand_of_kind
    cdef long long[::1] _shape_of_kind, _first_heap, _heap, _first_heap_of_shape
    cdef long long[::1] _free, _class, _after, _sizes, _noted, _noted_by_all, _first_host
    cdef long long[::1] _left_host, _right_host, _top, _entry_host, _entry_bucket
    cdef long long[::1] _left_entry, _right_entry
    cdef double[::1] _ratio, _scale, _score, _entry_score

    @cython.locals(bucket="Py_ssize_t", before="Py_ssize_t", host="Py_ssize_t")
    cpdef void add_hosts(self, object free, Py_ssize_t of_class, object hosts) except *

    @cython.locals(chosen=list, kind="Py_ssize_t", host="Py_ssize_t")
    cpdef list fill(self, object order)

    @cython.locals(best="Py_ssize_t", host="Py_ssize_t", bucket="Py_ssize_t", joined="Py_ssize_t")
    cdef Py_ssize_t _place(self, Py_ssize_t kind) except -7

    @cython.locals(best="Py_ssize_t", shape="Py_ssize_t", place="Py_ssize_t", heap="Py_ssize_t",
                   entry="Py_ssize_t")
    cdef Py_ssize_t _best_entry(self, Py_ssize_t kind, Py_ssize_t last) except -7

    @cython.locals(entry="Py_ssize_t", bucket="Py_ssize_t", noted="Py_ssize_t", first="long long")
    cdef void _refresh_top(self, Py_ssize_t shape, Py_ssize_t heap) except *

    @cython.locals(shape="Py_ssize_t", place="Py_ssize_t", sizes="long long", heap="Py_ssize_t",
                   entry="Py_ssize_t")
    cdef void _push_bucket(self, Py_ssize_t bucket, long long host) except *

    @cython.locals(entry="Py_ssize_t")
    cdef Py_ssize_t _new_entry(self) except -7

    @cython.locals(key=list, resource="Py_ssize_t", free="long long", joined="Py_ssize_t")
    cdef Py_ssize_t _bucket_after(self, Py_ssize_t bucket, Py_ssize_t demand) except -7

    @cython.locals(bucket="Py_ssize_t", resource="Py_ssize_t", shape="Py_ssize_t",
                   place="Py_ssize_t")
    cdef Py_ssize_t _bucket_of(self, tuple key) except -7

    @cython.locals(largest="long long", resource="Py_ssize_t", amount="long long",
                   number="long long", sizes="long long", place="Py_ssize_t")
    cdef long long _fitting_sizes(self, Py_ssize_t bucket, Py_ssize_t shape) except -7

    @cython.locals(score=double, first="Py_ssize_t", reference=double, resource="Py_ssize_t",
                   ratio=double, away=double)
    cdef double _mismatch(self, Py_ssize_t bucket, Py_ssize_t shape) except? -7.0

    cdef bint _is_before(self, Py_ssize_t entry, Py_ssize_t other) except *

    @cython.locals(top="Py_ssize_t", following="Py_ssize_t")
    cdef Py_ssize_t _merge_entries(self, Py_ssize_t one, Py_ssize_t other) except -7

    @cython.locals(top="Py_ssize_t", following="Py_ssize_t")
    cdef Py_ssize_t _merge_hosts(self, Py_ssize_t one, Py_ssize_t other) except -7

@cython.locals(place="Py_ssize_t", found="long long[::1]")
cdef long long[::1] grown(long long[::1] values, Py_ssize_t least)

@cython.locals(place="Py_ssize_t", found="double[::1]")
cdef double[::1] grown_floats(double[::1] values, Py_ssize_t least)
