"""A device plug-in of kubelets, which serves plain files as devices: `device_plugin.py nvidia.com/gpu FILE ...`.

It speaks version v1beta1 of the kubelet's protocol: it serves on a socket in the kubelet's folder, registers it with
the kubelet, and does so once more when the kubelet restarts, which removes the socket.
"""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from sparktrain.protocol.grpc_without_fork_handlers import grpc

FOLDER = Path("/var/lib/kubelet/device-plugins")
VERSION = "v1beta1"
_POLL_S = 0.5
_ANSWER_S = 5.0
_STRING, _BOOL, _MESSAGE = (
    descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
)
_ENVIRONMENT = "EnvsEntry"
# The messages that are used, with the numbers of their fields in the kubelet's api.proto. A `*` repeats a field.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Empty": {},
    "DevicePluginOptions": {},
    "RegisterRequest": {"version": (1, "string"), "endpoint": (2, "string"), "resource_name": (3, "string")},
    "Device": {"ID": (1, "string"), "health": (2, "string")},
    "ListAndWatchResponse": {"devices": (1, "*Device")},
    "ContainerAllocateRequest": {"devices_ids": (1, "*string")},
    "AllocateRequest": {"container_requests": (1, "*ContainerAllocateRequest")},
    "Mount": {"container_path": (1, "string"), "host_path": (2, "string"), "read_only": (3, "bool")},
    _ENVIRONMENT: {"key": (1, "string"), "value": (2, "string")},
    "ContainerAllocateResponse": {"envs": (1, f"*{_ENVIRONMENT}"), "mounts": (2, "*Mount")},
    "AllocateResponse": {"container_responses": (1, "*ContainerAllocateResponse")},
}


def messages() -> dict[str, Any]:
    """The classes of the protocol's messages, by their names."""
    file = descriptor_pb2.FileDescriptorProto(name="device_plugin.proto", package=VERSION, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            word = kind.removeprefix("*")
            type_name = f".{VERSION}.{word}" if word in _MESSAGES else None
            scalar = {"string": _STRING, "bool": _BOOL}.get(word, _MESSAGE)
            label = 3 if kind.startswith("*") else 1  # repeated, or not
            message.field.add(name=field, number=number, type=scalar, label=label, type_name=type_name)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{VERSION}.{name}")) for name in _MESSAGES
    }


class DevicePlugin:
    """Serves some files as devices of one resource. A device is called like its file."""

    def __init__(self, resource: str, devices: Sequence[Path]) -> None:
        self._resource = resource
        self._devices = {device.name: device for device in devices}
        self._messages = messages()

    def serve(self, socket: Path) -> Any:
        """Start to serve on a socket; returns the server. Does not block."""
        server = grpc.server(ThreadPoolExecutor(4))
        methods = {
            "GetDevicePluginOptions": self._unary("Empty", lambda request, _: self._messages["DevicePluginOptions"]()),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._list, self._messages["Empty"].FromString, _to_bytes
            ),
            "Allocate": self._unary("AllocateRequest", self._allocate),
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(f"{VERSION}.DevicePlugin", methods)])
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        return server

    def register(self, kubelet: Path, socket: Path) -> None:
        """Announce the socket to the kubelet, and block until it has answered. Raises grpc.RpcError."""
        request = self._messages["RegisterRequest"](version=VERSION, endpoint=socket.name, resource_name=self._resource)
        with grpc.insecure_channel(f"unix:{kubelet}") as channel:
            register = channel.unary_unary(f"/{VERSION}.Registration/Register", _to_bytes, lambda answer: answer)
            register(request, timeout=_ANSWER_S)

    def _unary(self, request: str, answer: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(answer, self._messages[request].FromString, _to_bytes)

    def _list(self, request: Any, context: Any) -> Iterator[Any]:
        """All devices are healthy; the stream must stay open, or the kubelet takes them for lost."""
        response = self._messages["ListAndWatchResponse"]()
        for name in self._devices:
            response.devices.add(ID=name, health="Healthy")
        yield response
        while context.is_active():
            time.sleep(_POLL_S)

    def _allocate(self, request: Any, context: Any) -> Any:
        """What each container gets: its files below /dev, and the variable by which NVIDIA's runtime knows them."""
        response = self._messages["AllocateResponse"]()
        for container in request.container_requests:
            granted = response.container_responses.add()
            granted.envs.add(key="NVIDIA_VISIBLE_DEVICES", value=",".join(container.devices_ids))
            for name in container.devices_ids:
                granted.mounts.add(container_path=f"/dev/{name}", host_path=str(self._devices[name]), read_only=True)
        return response


def _to_bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def main(resource: str, *devices: str) -> None:
    """Serve until SIGTERM, and register with each kubelet that starts."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    plugin = DevicePlugin(resource, [Path(device) for device in devices])
    kubelet = FOLDER / "kubelet.sock"
    socket = FOLDER / f"{resource.replace('/', '-')}.sock"
    server = None
    while True:
        if kubelet.exists() and not socket.exists():
            if server is not None:
                server.stop(grace=None)
            server = plugin.serve(socket)
            try:
                plugin.register(kubelet, socket)
                print(f"registered {len(devices)} devices of {resource}", flush=True)
            except grpc.RpcError as error:
                print(f"the kubelet does not answer: {error.details()}", flush=True)
                server.stop(grace=None).wait()
                socket.unlink(missing_ok=True)
        time.sleep(_POLL_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
