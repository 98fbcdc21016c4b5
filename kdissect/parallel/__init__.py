"""One capture, several processes: START HERE for ``-j N``.

Everything about one connection is decided by its own packets, and by how many others came and when
(net/connection.py). So each of N workers reads the same files, steps over all packets, and takes the
connections that are its ``Share``. Two things cross connections, the order of the output and the names of
topic ids, and these the parent does, with the very classes that one process does them with.

    worker                                               parent
    ------                                               ------
    Batch   what the next packets completed: of each     ->  assembling.py puts the batches of all workers
            row its place, and what its sink makes           together by their places, where need be through
            of it (bytes, as a rule); or that it is          Ordering and Naming
            open: there are topic ids in it that
            were never told
                                                         <-  Told: how far all are together; names of ids that
                                                             were taught; names for the open rows whose turn
                                                             has come
    Late    what the sink makes of these                 ->  they take their place in the output
    End     the capture is read: counts, warnings,       ->  they are added up
            what the sink knows (a summary)
                                                         <-  Stop: no more is wanted

A place is the number of the TCP segment in the capture that brought the row: all workers count all of them,
so places agree. A row whose ids have all been told, on a connection without open rows, needs no word from the
parent. That is nearly every row, so the parent only sorts finished lines by their places and writes them.

Nothing can wait for ever: a worker sends no more than ``AHEAD`` batches beyond the place up to which all have
come, and the one that is behind is never ahead; what the parent sends is taken by a thread of the worker's
own, whatever its other thread does; the parent reads whatever comes from whichever worker. A process that
dies closes its pipe: workers end without a parent, and the parent says which worker is gone.

    worker.py       the worker's side; what it makes of exchanges: texts, sums of a summary
    tables.py       rows of an export
    assembling.py   what they say to one another; the parent's side: rows of all workers -> their order
    crew.py         processes and pipes

cli/sharing.py brings them together, and says when.
"""
