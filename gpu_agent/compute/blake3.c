/* BLAKE3 (section 2 of its specification) of bytes that lie on a card, a thread for each chunk. Knows no region and no key.
 *
 * Compiled by NVRTC where it is used. As plain C, where NUMBER says which thread's work is done, any compiler takes it: so it is tested
 * without a card. */

#ifdef __CUDACC_RTC__
#define KERNEL extern "C" __global__ void
#define INLINE static __device__ __forceinline__
#define ALIGNED __align__(16)
#define NUMBER ((word64)blockIdx.x * blockDim.x + threadIdx.x)
#else
#define KERNEL void
#define INLINE static inline
#define ALIGNED __attribute__((aligned(16)))
#endif

typedef unsigned char byte;
typedef unsigned int word;
typedef unsigned long long word64;
typedef struct ALIGNED { word a, b, c, d; } quad;

#ifndef __CUDACC_RTC__
word64 NUMBER;
#endif

#define CHUNK 1024
#define BLOCK 64
#define VALUE 8 /* words of a chaining value */
#define CHUNK_START 1
#define CHUNK_END 2
#define PARENT 4
#define ROOT 8

#define START_0 0x6A09E667u
#define START_1 0xBB67AE85u
#define START_2 0x3C6EF372u
#define START_3 0xA54FF53Au
#define START_4 0x510E527Fu
#define START_5 0x9B05688Cu
#define START_6 0x1F83D9ABu
#define START_7 0x5BE0CD19u

INLINE word rotated(word value, int bits) { return (value >> bits) | (value << (32 - bits)); }

#define MIX(a, b, c, d, x, y)              \
    a = a + b + (x); d = rotated(d ^ a, 16); \
    c = c + d;       b = rotated(b ^ c, 12); \
    a = a + b + (y); d = rotated(d ^ a, 8);  \
    c = c + d;       b = rotated(b ^ c, 7);

/* Message words in the order in which a round takes them. */
#define ROUND(m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, ma, mb, mc, md, me, mf)             \
    MIX(v0, v4, v8, vc, m[m0], m[m1]) MIX(v1, v5, v9, vd, m[m2], m[m3])                   \
    MIX(v2, v6, va, ve, m[m4], m[m5]) MIX(v3, v7, vb, vf, m[m6], m[m7])                   \
    MIX(v0, v5, va, vf, m[m8], m[m9]) MIX(v1, v6, vb, vc, m[ma], m[mb])                   \
    MIX(v2, v7, v8, vd, m[mc], m[md]) MIX(v3, v4, v9, ve, m[me], m[mf])

/* The chaining value `h` (8 words) becomes that of one block more (16 words). */
INLINE void compress(word *h, const word *m, word64 counter, word length, word flags) {
    word v0 = h[0], v1 = h[1], v2 = h[2], v3 = h[3], v4 = h[4], v5 = h[5], v6 = h[6], v7 = h[7];
    word v8 = START_0, v9 = START_1, va = START_2, vb = START_3;
    word vc = (word)counter, vd = (word)(counter >> 32), ve = length, vf = flags;
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
    ROUND(2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
    ROUND(3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1)
    ROUND(10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6)
    ROUND(12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4)
    ROUND(9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7)
    ROUND(11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13)
    h[0] = v0 ^ v8; h[1] = v1 ^ v9; h[2] = v2 ^ va; h[3] = v3 ^ vb;
    h[4] = v4 ^ vc; h[5] = v5 ^ vd; h[6] = v6 ^ ve; h[7] = v7 ^ vf;
}

INLINE void begin(word *h) {
    h[0] = START_0; h[1] = START_1; h[2] = START_2; h[3] = START_3;
    h[4] = START_4; h[5] = START_5; h[6] = START_6; h[7] = START_7;
}

/* The first `left` bytes, at most four, of a word that lies on a multiple of four; zeros behind them. */
INLINE word part(const byte *bytes, int left) {
    word value = 0;
    for (int at = 0; at < left && at < 4; at++) value |= (word)bytes[at] << 8 * at;
    return value;
}

/* Up to a block, zeros behind its end. `bytes` lies on a multiple of sixteen. */
INLINE void fill(word *m, const byte *bytes, int length) {
    if (length == BLOCK) { /* four words at once: threads read far from one another, and each read is of a whole sector */
        const quad *whole = (const quad *)bytes;
        for (int at = 0; at < BLOCK / 16; at++) {
            quad four = whole[at];
            m[4 * at] = four.a; m[4 * at + 1] = four.b; m[4 * at + 2] = four.c; m[4 * at + 3] = four.d;
        }
    } else {
        for (int at = 0; at < BLOCK / 4; at++) m[at] = part(bytes + 4 * at, length - 4 * at);
    }
}

/* Chaining values (8 words each) of the chunks of `length` bytes, which begin with the stream's chunk `first`; for a stream of more than one
 * chunk. */
KERNEL chunks(const byte *bytes, word64 length, word64 first, word *values) {
    word64 number = NUMBER;
    if (number * CHUNK >= length) return;
    word64 left = length - number * CHUNK;
    word size = left < CHUNK ? (word)left : CHUNK;
    word last = (size - 1) / BLOCK;
    word h[VALUE], m[BLOCK / 4];
    begin(h);
    bytes += number * CHUNK;
    for (word at = 0; at <= last; at++) {
        word here = at < last ? BLOCK : size - last * BLOCK;
        fill(m, bytes + at * BLOCK, here);
        compress(h, m, first + number, here, (at ? 0 : CHUNK_START) | (at < last ? 0 : CHUNK_END));
    }
    for (int at = 0; at < VALUE; at++) values[number * VALUE + at] = h[at];
}

/* A level up: of each two of `count` values their parent's; an odd last one goes up as it is. `root`: 8 where a level of two has the
 * stream's own value above it. */
KERNEL parents(const word *values, word64 count, word root, word *above) {
    word64 number = NUMBER;
    if (2 * number >= count) return;
    const word *pair = values + 2 * number * VALUE;
    word h[VALUE];
    if (2 * number + 1 == count) {
        for (int at = 0; at < VALUE; at++) h[at] = pair[at];
    } else {
        word m[BLOCK / 4];
        for (int at = 0; at < BLOCK / 4; at++) m[at] = pair[at];
        begin(h);
        compress(h, m, 0, BLOCK, PARENT | (count == 2 ? root : 0));
    }
    for (int at = 0; at < VALUE; at++) above[number * VALUE + at] = h[at];
}
