"""The methods of the services by name, from the description: for a server, and for a client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf import message_factory
from google.protobuf.message import Message

from windrow.protocols.csi import csi_pb2

Response = TypeVar("Response", bound=Message)
# What serves one method: a request and the call's context to a response.
Serve = Callable[[Any, "grpc.aio.ServicerContext[Any, Any]"], Awaitable[Message]]

IDENTITY, CONTROLLER, NODE = "Identity", "Controller", "Node"
SERVICES = (IDENTITY, CONTROLLER, NODE)


@dataclass(frozen=True, slots=True)
class Method:
    """One method: its name, where it is called, and the classes of its messages."""

    name: str
    path: str
    request: type[Message]
    response: type[Message]


def methods_of(service: str) -> Mapping[str, Method]:
    """The methods of a service, by name. `service` is one of SERVICES."""
    described = csi_pb2.DESCRIPTOR.services_by_name[service]
    return {
        method.name: Method(
            method.name,
            f"/{described.full_name}/{method.name}",
            message_factory.GetMessageClass(method.input_type),
            message_factory.GetMessageClass(method.output_type),
        )
        for method in described.methods
    }


def rpc_handler(service: str, served: Mapping[str, Serve]) -> grpc.GenericRpcHandler:
    """What a server registers for `service`. A method that is not among `served` is answered UNIMPLEMENTED by gRPC."""
    methods = methods_of(service)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            serve,
            request_deserializer=methods[name].request.FromString,
            response_serializer=methods[name].response.SerializeToString,
        )
        for name, serve in served.items()
    }
    return grpc.method_handlers_generic_handler(f"{csi_pb2.DESCRIPTOR.package}.{service}", handlers)


class ServiceClient:
    """Calls the methods of one service over a channel: `await client.call(NodeGetInfoRequest(), NodeGetInfoResponse)`.

    The method is told by the class of the request. Raises grpc.aio.AioRpcError as the server answers.
    """

    def __init__(self, channel: grpc.aio.Channel, service: str) -> None:
        self._calls = {
            method.request: channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
            for method in methods_of(service).values()
        }

    async def call(
        self, request: Message, response: type[Response], *, timeout_s: float | None = None
    ) -> Response:
        answer = await self._calls[type(request)](request, timeout=timeout_s)
        assert isinstance(answer, response)
        return answer
