/*
 * The kinds of scalars in migration tables: numbers of four widths, booleans (0 or 1, nothing
 * else), raw bytes, and numbers that must be what they are here.
 */
#include <inttypes.h>
#include <string.h>

#include "stream.h"

static uint64_t number_at(const void *data, size_t size)
{
    switch (size) {
    case 1:
        return *(const uint8_t *)data;
    case 2:
        return *(const uint16_t *)data;
    case 4:
        return *(const uint32_t *)data;
    default:
        return *(const uint64_t *)data;
    }
}

static void number_put(void *data, size_t size, uint64_t value)
{
    switch (size) {
    case 1:
        *(uint8_t *)data = (uint8_t)value;
        break;
    case 2:
        *(uint16_t *)data = (uint16_t)value;
        break;
    case 4:
        *(uint32_t *)data = (uint32_t)value;
        break;
    default:
        *(uint64_t *)data = value;
    }
}

static void number_save(VmWriter *w, const void *data, const VMStateField *field)
{
    vm_write_uint(w, number_at(data, field->info->size), (unsigned)field->info->size);
}

static void number_load(VmReader *r, void *data, const VMStateField *field)
{
    uint64_t value = vm_read_uint(r, (unsigned)field->info->size);

    if (field->max && value > field->max) {
        vm_reader_fail(r, "%" PRIu64 " > %" PRIu64, value, field->max);
        return;
    }
    number_put(data, field->info->size, value);
}

static void equal_load(VmReader *r, void *data, const VMStateField *field)
{
    uint64_t value = vm_read_uint(r, (unsigned)field->info->size);
    uint64_t here = number_at(data, field->info->size);

    if (value != here && !vm_reader_failed(r)) {
        vm_reader_fail(r, "%" PRIu64 " is %" PRIu64 " here, they must be equal", value, here);
    }
}

static void bool_load(VmReader *r, void *data, const VMStateField *field)
{
    uint64_t value = vm_read_uint(r, 1);

    if (value > 1) {
        vm_reader_fail(r, "%" PRIu64 " > 1", value);
    }
    *(bool *)data = value == 1;
}

static void buffer_save(VmWriter *w, const void *data, const VMStateField *field)
{
    vm_write(w, data, field->size);
}

static void buffer_load(VmReader *r, void *data, const VMStateField *field)
{
    vm_read(r, data, field->size);
}

static void unused_save(VmWriter *w, const void *data, const VMStateField *field)
{
    for (size_t i = 0; i < field->size; i++) {
        vm_write_uint(w, 0, 1);
    }
}

static void unused_load(VmReader *r, void *data, const VMStateField *field)
{
    vm_reader_skip(r, field->size);
}

const VMStateInfo vmstate_info_uint8 = {"uint8", 1, number_save, number_load};
const VMStateInfo vmstate_info_uint16 = {"uint16", 2, number_save, number_load};
const VMStateInfo vmstate_info_uint32 = {"uint32", 4, number_save, number_load};
const VMStateInfo vmstate_info_uint64 = {"uint64", 8, number_save, number_load};
const VMStateInfo vmstate_info_int32 = {"int32", 4, number_save, number_load};
const VMStateInfo vmstate_info_bool = {"bool", 1, number_save, bool_load};
const VMStateInfo vmstate_info_buffer = {"buffer", 0, buffer_save, buffer_load};
const VMStateInfo vmstate_info_unused = {"unused_buffer", 0, unused_save, unused_load};
const VMStateInfo vmstate_info_uint16_equal = {"uint16 equal", 2, number_save, equal_load};
const VMStateInfo vmstate_info_uint32_equal = {"uint32 equal", 4, number_save, equal_load};
const VMStateInfo vmstate_info_int32_equal = {"int32 equal", 4, number_save, equal_load};
