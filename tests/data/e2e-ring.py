"""Two ranks of MPI send 64 MiB to each other; rank 0 prints how many bytes it sent. Needs no package but libmpi."""

import ctypes

SIZE = 64 << 20

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
world = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_world")))
byte = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_byte")))
rank = ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
buffer = (ctypes.c_char * SIZE)()
status = (ctypes.c_char * 64)()
if rank.value == 0:
    mpi.MPI_Send(buffer, SIZE, byte, 1, 7, world)
    mpi.MPI_Recv(buffer, SIZE, byte, 1, 7, world, status)
    print(SIZE, flush=True)
else:
    mpi.MPI_Recv(buffer, SIZE, byte, 0, 7, world, status)
    mpi.MPI_Send(buffer, SIZE, byte, 0, 7, world)
mpi.MPI_Finalize()
