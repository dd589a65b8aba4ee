/* Low bits of the be64 in front of each entry of a RAM section. */
#ifndef MIGRATION_RAM_FLAGS_H
#define MIGRATION_RAM_FLAGS_H

enum {
    RAM_FLAG_ZERO = 0x02,
    RAM_FLAG_MEM_SIZE = 0x04,
    RAM_FLAG_PAGE = 0x08,
    RAM_FLAG_EOS = 0x10,
    RAM_FLAG_CONTINUE = 0x20,
    RAM_FLAG_XBZRLE = 0x40,
    RAM_FLAG_HOOK = 0x80,
    RAM_FLAG_MULTIFD = 0x200,
};

#endif
