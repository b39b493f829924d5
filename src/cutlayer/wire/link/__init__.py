"""Links as `100mbit,10ms`: the time that bytes take, senders that wait for it, and the bandwidth as measured.

It must not know what is sent.
"""
