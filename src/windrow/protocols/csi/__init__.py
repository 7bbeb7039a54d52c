"""The Container Storage Interface on the wire: messages and methods of its services Identity, Controller and Node.

`csi.proto` is our own reduced description, `csi_pb2` the messages made from it (`make stubs`; `make check` compares).
`services` is the only module here with gRPC in it: the methods of a service by name, for a server and for a client.

Who implements which service:

* Identity: `windrow.csi.identity`;
* Controller: `windrow.csi.controller`, over the port `windrow.csi.volumes`;
* Node: `windrow.csi.node`, over the port `windrow.csi.mounts`;
* all are served by `windrow.csi.server`, which gives each error its status code.

An implementation is an object with an async method for each that it serves, named as in the description:
`async def NodeGetInfo(self, request: NodeGetInfoRequest) -> NodeGetInfoResponse`. It knows messages and errors, no gRPC.
"""
