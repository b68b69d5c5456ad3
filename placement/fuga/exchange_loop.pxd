# Types of C for exchange_loop.py, where it is compiled.
cimport cython

cdef double _ANY_NUMBER, _TOLERANCE, _MAX_STEPS, _SLACK, _ROUNDING, _UNKNOWN
cdef long long _PAIRS_A_UNIT, _LARGEST_BATCH, _RICHEST, _NEVER

cdef class ExchangeSearch:
    cdef public list made
    cdef public bint cut
    cdef object _budget
    cdef double[::1] _pool, _weight, _level, _vm_level, _level_after, _above, _level_left
    cdef long long[::1] _held, _demand, _room, _first_party, _tenant, _kind, _open_to, _host_class
    cdef long long[::1] _party, _next_alike, _placed, _waiting, _kept, _steps, _first_waiting, _slot
    cdef long long[::1] _fewest, _row_request, _row_host, _row_count
    cdef long long[::1] _first_on_host, _first_of_party, _next_on_host, _next_of_party
    cdef long long[::1] _needed_before
    cdef Py_ssize_t _best_row
    cdef long long _best_taken, _best_steps, _best_lost, _best_key
    cdef double _highest, _highest_left
    cdef signed char[::1] _queued, _without, _reduced
    cdef Py_ssize_t _resources, _tenants, _parties, _hosts, _classes, _rows
    cdef list _richest, _queue, _seemed_able, _kind_of_slot, _without_of_slot

    @cython.locals(together="Py_ssize_t", party="Py_ssize_t", start="Py_ssize_t", looked_at=list, starts=list)
    cpdef bint make_fairest_exchange(self) except *

    @cython.locals(slot="Py_ssize_t", place="Py_ssize_t", tenant="Py_ssize_t", rich="Py_ssize_t",
                   too_poor=double, least=double)
    cdef Py_ssize_t _first_able_tenant(self, Py_ssize_t poor) except -2

    @cython.locals(slot="Py_ssize_t", place="Py_ssize_t", tenants="Py_ssize_t", tenant="Py_ssize_t",
                   rich="Py_ssize_t", together="long long", levels="long long", level="long long",
                   pairs="long long", full=bint, too_poor=double, least=double)
    cdef bint _make_best_exchange_for(self, Py_ssize_t poor, Py_ssize_t start) except *

    @cython.locals(kind="Py_ssize_t", row="Py_ssize_t", request="Py_ssize_t", steps="long long",
                   pairs="long long", last="long long", lost="long long", needed="long long",
                   key="long long", maximum=double, rich_after=double)
    cdef long long _weigh_rows(self, Py_ssize_t poor, Py_ssize_t rich) except -7

    cdef bint _is_better(self, long long steps, long long lost, long long key) except *

    @cython.locals(rich="Py_ssize_t", host="Py_ssize_t", gave="Py_ssize_t", got="Py_ssize_t",
                   giver="Py_ssize_t", receiver="Py_ssize_t", tenant="Py_ssize_t",
                   party="Py_ssize_t", resource="Py_ssize_t", slot="Py_ssize_t", there="Py_ssize_t",
                   back="long long", want="long long")
    cdef void _apply_exchange(self, Py_ssize_t row, long long taken, Py_ssize_t poor) except *

    @cython.locals(host="Py_ssize_t", slots="Py_ssize_t", gained="Py_ssize_t", there="Py_ssize_t",
                   place="Py_ssize_t", slot="Py_ssize_t", back="Py_ssize_t", want="Py_ssize_t",
                   resource="Py_ssize_t", party="Py_ssize_t", kind="Py_ssize_t",
                   fewest="Py_ssize_t", now="long long", before="long long")
    cdef void _exchange_on_host(self, Py_ssize_t row, long long taken, Py_ssize_t poor) except *

    @cython.locals(row="Py_ssize_t")
    cdef Py_ssize_t _row_of(self, Py_ssize_t request, Py_ssize_t host) except -7

    @cython.locals(place="Py_ssize_t", row="Py_ssize_t", slot="Py_ssize_t")
    cdef void _keep_needed(self, Py_ssize_t host) except *

    @cython.locals(again=list, waiting=list, party="Py_ssize_t", slot="Py_ssize_t")
    cdef void _recheck(self, Py_ssize_t host, Py_ssize_t now_poorer, Py_ssize_t now_richer) except *

    @cython.locals(row="Py_ssize_t", tenant="Py_ssize_t", left=double)
    cdef void _set_highest_giver(
        self, Py_ssize_t slot, Py_ssize_t host, Py_ssize_t now_richer) except *

    @cython.locals(helped=list, party="Py_ssize_t", after=double)
    cdef list _parties_helped(self, Py_ssize_t slot, Py_ssize_t host, Py_ssize_t now_richer)

    @cython.locals(slot="Py_ssize_t", rich="Py_ssize_t", there="Py_ssize_t")
    cdef bint _has_giver(self, Py_ssize_t poor, Py_ssize_t host, Py_ssize_t tenant) except *

    @cython.locals(fewest="long long")
    cdef bint _is_able(self, Py_ssize_t poor, Py_ssize_t rich, Py_ssize_t slot) except *

    @cython.locals(tenant="Py_ssize_t", of_one=double, level=double, maximum=double,
                   resource="Py_ssize_t", above=double, each="long long")
    cdef double _max_vms_to_give(self, Py_ssize_t poor, Py_ssize_t rich) except? -7.0

    @cython.locals(left=double, rich="Py_ssize_t", fewest="long long", level=double)
    cdef double _level_after_making_room(self, Py_ssize_t slot, Py_ssize_t tenant) except? -7.0

    @cython.locals(tenant="Py_ssize_t", level=double, resource="Py_ssize_t", amount="long long",
                   share=double)
    cdef double _level_with(self, Py_ssize_t party, long long count, long long holding) except? -7.0

    @cython.locals(host="Py_ssize_t", count="long long", back="Py_ssize_t", needed="long long",
                   resource="Py_ssize_t", missing="long long", each="long long",
                   number="long long")
    cdef long long _needed(self, Py_ssize_t kind, Py_ssize_t row) except -7

    @cython.locals(fewest="long long", row="Py_ssize_t", needed="long long")
    cdef long long _fewest_of(self, Py_ssize_t party, Py_ssize_t kind) except -7

    @cython.locals(slot="Py_ssize_t", party="Py_ssize_t")
    cdef Py_ssize_t _slot_of(self, Py_ssize_t kind) except -7

    @cython.locals(host="Py_ssize_t", party="Py_ssize_t")
    cdef void _link_row(self, Py_ssize_t row) except *

    cdef Py_ssize_t _next_waiting(self, Py_ssize_t request) except -7

    @cython.locals(waiting=list)
    cdef void _mark_without_exchange(self, Py_ssize_t party) except *

    cdef void _enter_queue(self, Py_ssize_t party) except *

    cdef void _leave_queue(self, Py_ssize_t party) except *

    @cython.locals(steps="long long", request="long long", low="Py_ssize_t", high="Py_ssize_t",
                   middle="Py_ssize_t", other="Py_ssize_t", others="long long")
    cdef Py_ssize_t _place_in_queue(self, Py_ssize_t party) except -7

    @cython.locals(steps="long long", low="Py_ssize_t", high="Py_ssize_t", middle="Py_ssize_t",
                   other="Py_ssize_t")
    cdef Py_ssize_t _place_of_tenant(self, Py_ssize_t tenant) except -7

    @cython.locals(above=double, low="Py_ssize_t", high="Py_ssize_t", middle="Py_ssize_t",
                   other="Py_ssize_t")
    cdef Py_ssize_t _place_of_level(self, list waiting, Py_ssize_t party) except -7

@cython.locals(whole="long long", steps=double, rest=double)
cdef long long steps_of(double level) except -7

cdef long long[::1] grown(long long[::1] values, Py_ssize_t used, long long value)

@cython.locals(place="Py_ssize_t", found="long long[::1]")
cdef long long[::1] extended(long long[::1] values, Py_ssize_t more, long long value)

@cython.locals(place="Py_ssize_t", found="double[::1]")
cdef double[::1] extended_levels(double[::1] values, Py_ssize_t more)
