"""Streams of events: server-sent events, of which one reader of the database feeds all."""

from controller.rest.streams.event_stream import EventStream
from controller.rest.streams.feed import EventFeed
from controller.rest.streams.permits import StreamPermits

__all__ = ["EventFeed", "EventStream", "StreamPermits"]
