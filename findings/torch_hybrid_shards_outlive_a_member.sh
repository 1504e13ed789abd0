#!/usr/bin/env bash
# A model of fully_shard in hybrid sharding (two replicas of two parts) loses a process in a step. Can the other three keep
# their processes and their parts, and train on with a new fourth one, to the bits of a run without the loss?
#
# Yes, wherever the process is lost, with four things that no documentation names together. (1) End the connections of all
# groups, those of the mesh too, and drop the groups that the mesh and its users hold: otherwise a member waits for ever for
# one that has left, in a group of the two from which no process is lost. (2) Make the groups of the mesh again, by its own
# _init_process_groups, and have each mesh_info of the parameters look them up, by its __post_init__: neither is public.
# (3) Call reset_iter_state() on the root, which is. (4) Have one collective between the gradients and optimizer.step():
# without it some members may have stepped while others have no gradients, and the weights before are gone. A loss within
# that collective itself may still leave some members a step ahead of others.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet torch==2.15.0 numpy==2.4.6
cat > "$folder/program.py" <<'PYTHON'
import multiprocessing
import os
import signal
import socket
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

SIZE = 4
STEPS = 6
BROKEN = 3
"""The step that loses a process."""
LIMIT = timedelta(seconds=60)
PLACES = ("before forward", "in forward", "after forward", "in backward", "before optimizer", "after optimizer")


def sockets():
    links = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            links[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return {(number, link) for number, link in links.items() if link.startswith("socket:")}


class Member:
    def __init__(self, rank, port, ring, place):
        self.rank, self.port, self.place, self.is_new = rank, port, place, ring > 0
        before = sockets()
        self.join(ring)
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "parts"))
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 96), nn.Tanh(), nn.Linear(96, 8))
        for layer in (self.model[0], self.model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.peers = sockets() - before
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 0.01)
        self.step = 0
        self.model[2].register_forward_hook(lambda *_: self.dies("in forward"))
        self.model[2].register_full_backward_hook(lambda *_: self.dies("in backward"))

    def join(self, ring):
        self.store = dist.TCPStore("127.0.0.1", self.port, is_master=False, timeout=LIMIT)
        store = dist.PrefixStore(f"{ring}", self.store)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=SIZE, timeout=LIMIT)

    def dies(self, place):
        if not self.is_new and self.rank == SIZE - 1 and (self.step, place) == (BROKEN, self.place):
            os.kill(os.getpid(), signal.SIGKILL)

    def mesh_infos(self):
        states = [module._get_fsdp_state() for module in self.model.modules() if isinstance(module, FSDPModule)]
        groups = [group for state in states for group in state._fsdp_param_groups]
        infos = [info for group in groups for info in (group.mesh_info, group.post_forward_mesh_info)]
        infos += [parameter.mesh_info for group in groups for parameter in group.fsdp_params]
        return {id(info): info for info in infos if info is not None}.values()

    def leave(self):
        for number, _ in self.peers & sockets():
            try:
                with socket.socket(fileno=os.dup(number)) as connection:
                    if self.port not in (connection.getpeername()[1], connection.getsockname()[1]):
                        connection.shutdown(socket.SHUT_RD)
            except OSError:
                continue  # it listens, or the other end is gone
        dist.destroy_process_group()
        for info in self.mesh_infos():
            info.mesh._pg_registry.clear()
            info.shard_process_group = info.replicate_process_group = None

    def rejoin(self, ring):
        before = sockets()
        self.join(ring)
        for mesh in {id(info.mesh): info.mesh for info in self.mesh_infos()}.values():
            defaults = ((None, None),) * mesh.ndim
            mesh._dim_group_names = mesh._init_process_groups(
                mesh._layout, mesh._rank_map, mesh.mesh_dim_names, defaults, mesh._preserve_rank_order
            )
            mesh._pg_registry.update(
                {name: dist.distributed_c10d._resolve_process_group(name) for name in mesh._dim_group_names}
            )
        for info in self.mesh_infos():
            info.__post_init__()
        self.peers = sockets() - before
        self.model.reset_iter_state()

    def tensors(self):
        for parameter in self.model.parameters():
            slots = self.optimizer.state[parameter]
            for tensor in (parameter.detach(), *(slots[name] for name in sorted(slots))):
                yield tensor.to_local() if isinstance(tensor, DTensor) else tensor

    def receive_state(self):
        """The new process gets the part of its replica, and the step of all."""
        steps = torch.tensor([self.step])
        dist.broadcast(steps, 0)
        self.step = int(steps)
        if self.is_new:
            for parameter in self.model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            self.optimizer.step()
            self.optimizer.zero_grad()
        if self.rank == 1:
            for tensor in self.tensors():
                dist.send(tensor, 3)
        elif self.rank == 3:
            for tensor in self.tensors():
                dist.recv(tensor, 1)

    def train_step(self):
        x = torch.randn(16, 64, generator=torch.Generator().manual_seed(100 * self.step + self.rank))
        self.dies("before forward")
        self.optimizer.zero_grad()
        loss = self.model(x).square().mean()
        self.dies("after forward")
        loss.backward()
        dist.all_reduce(torch.zeros(1))  # all have their gradients
        self.dies("before optimizer")
        self.optimizer.step()
        self.dies("after optimizer")
        self.step += 1


def run(rank, port, ring, place, news, folder):
    torch.set_num_threads(1)
    member = Member(rank, port, ring, place)
    if ring:
        member.receive_state()
    while member.step < STEPS:
        try:
            member.train_step()
        except RuntimeError:
            member.leave()
            news.send(rank)
            member.rejoin(news.recv())
            member.receive_state()
    torch.save(list(member.tensors()), f"{folder}/{rank}.pt")
    dist.barrier()
    os._exit(0)  # threads of Gloo may end after what they use


def train(place, folder):
    """What all members have in the end, and how many processes took part."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=LIMIT)
    context = multiprocessing.get_context("spawn")
    news, processes = {}, {}

    def start(rank, ring):
        news[rank], other = context.Pipe()
        processes[rank] = context.Process(target=run, args=(rank, server.port, ring, place, other, folder))
        processes[rank].start()

    for rank in range(SIZE):
        start(rank, 0)
    count = SIZE
    if place:
        processes[SIZE - 1].join(60)
        for rank in range(SIZE - 1):
            assert news[rank].poll(60), f"rank {rank} still waits after the loss {place}"
            news[rank].recv()
        start(SIZE - 1, 1)
        count += 1
        for rank in range(SIZE - 1):
            news[rank].send(1)
    for process in processes.values():
        process.join(60)
        assert process.exitcode == 0
    return [tensor for rank in range(SIZE) for tensor in torch.load(f"{folder}/{rank}.pt")], count


if __name__ == "__main__":
    expected, _ = train("", sys.argv[1])
    for place in PLACES:
        found, count = train(place, sys.argv[1])
        equal = all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
        print(f"torch {torch.__version__}, lost {place}: {count} processes, equal bits: {equal}")
        assert equal and count == SIZE + 1
PYTHON
OMP_NUM_THREADS=1 "$folder/env/bin/python" -W ignore "$folder/program.py" "$folder"
