# SPDX-FileCopyrightText: The hetGPU authors
# SPDX-License-Identifier: Apache-2.0
#
"""elf.py FILE [OUT]: symbols and sections of a cubin; with OUT a copy in which the bits
of st_other are cleared that only managed variables (big, small) have."""
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
assert data[:4] == b"\x7fELF", data[:8]
shoff, = struct.unpack_from("<Q", data, 0x28); flags, = struct.unpack_from("<I", data, 0x30)
shentsize, shnum, shstrndx = struct.unpack_from("<HHH", data, 0x3A)
print("ELF: abi %d.%d, flags %#x, %d sections" % (data[7], data[8], flags, shnum))
sec = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + i * shentsize) for i in range(shnum)]
def text(at): return bytes(data[at:data.index(0, at)]).decode()
names = [text(sec[shstrndx][4] + s[0]) for s in sec]
for i, s in enumerate(sec): print("section %2d %-28s type %#x flags %#x size %d" % (i, names[i], s[1], s[2], s[5]))
others = {}
for i, s in enumerate(sec):
    if s[1] != 2: continue  # SHT_SYMTAB
    strtab = sec[s[6]]
    for at in range(s[4], s[4] + s[5], 24):
        name, info, other, shndx, value, size = struct.unpack_from("<IBBHQQ", data, at)
        n = text(strtab[4] + name)
        where = names[shndx] if shndx < shnum else hex(shndx)
        print("symbol %-24s info %#x other %#x in %-22s value %#x size %d" % (n, info, other, where, value, size))
        if n in ("big", "small", "plain", "tiny"): others[n] = (at + 5, other)
for i, s in enumerate(sec):
    if names[i].startswith(".nv.info") or "managed" in names[i]: print("contents of %s: %s" % (names[i], bytes(data[s[4]:s[4] + s[5]]).hex(" ", 4)))
if {"big", "plain"} <= set(others):
    bits = others["big"][1] & ~others["plain"][1]
    print("FACT bits of st_other that only managed variables have: %#x" % bits)
    if len(sys.argv) > 2:
        for n in ("big", "small"):
            at, other = others[n]; data[at] = other & ~bits
        open(sys.argv[2], "wb").write(data); print("FACT wrote %s without them" % sys.argv[2])
