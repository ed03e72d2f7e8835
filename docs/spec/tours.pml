/* Collected tours (docs/protocol.md), checked exhaustively by spin within stated bounds: a round's visits, one after another, each into a
   region of its own, where their records wait; one training of all of them; one end for all of them. With vetoes, leases that end, crashes of
   the orchestrator, resets of the GPU, tours that are not kept, and a holder that writes late. The moves of visits, training phases and
   regions are those of tables.pml, which is made from the code's tables: an illegal move is an assertion violation.

   Commands are atomic here: frames, their numbers and their replay are travel.pml's, and hold for tours as for visits. Tours of accumulated
   gradients are not modelled: their visits are travel.pml's, and a tour's end touches no record.

   Knows no key and no byte. Whose record lies in a region is `g_taint`, by the epoch it was sealed under; the model is the number of tours
   that it has learnt from. Run: make spec.

   Bounds   ROUNDS, CRASHES (of the orchestrator), RESETS (of the GPU), TIMEOUTS (leases that end), VETOES, EVIL (acts of the malicious
            holder 2), DROPPED (tours that are not kept)
   WITHOUT_… takes one defence away; the check must then fail, or it would prove nothing.
*/
#include "tables.pml"

#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef RESETS
#define RESETS 0
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 0
#endif
#ifndef VETOES
#define VETOES 0
#endif
#ifndef EVIL
#define EVIL 0
#endif
#ifndef DROPPED
#define DROPPED 0
#endif
#define HOLDERS 3
#define MALLORY 2
#define NONE 0
/* a crash or a reset repeats what waits, a reset also what no checkpoint has */
#define EPOCHS (HOLDERS * (ROUNDS * (1 + RESETS) + CRASHES + RESETS) + TIMEOUTS + EVIL + 1)

/* ------------------------------------------------------------------ the GPU: a region for each holder */
byte g_high, g_model, g_committed;
byte g_region[HOLDERS + 1] = R_CLEAN;
byte g_grant[HOLDERS + 1];          /* epoch whose key opens traffic into this holder's region, or NONE */
byte g_taint[HOLDERS + 1];          /* epoch under which what lies there was sealed, or NONE */
bit g_compute, g_session, looked;

/* ------------------------------------------------------------------ the journal survives, the rest of the orchestrator dies with it */
byte j_round, j_learnt, j_kept, j_kept_round, j_high;
byte j_phase[HOLDERS + 1], j_train[HOLDERS + 1];    /* NONE: this round's visit was not planned, or is to come again */
byte j_epoch[HOLDERS + 1];
bit j_gone[HOLDERS + 1];            /* vetoed */

byte offered[HOLDERS + 1], reported[HOLDERS + 1];
byte crashes = CRASHES, resets = RESETS, timeouts = TIMEOUTS, vetoes = VETOES, evil = EVIL, dropped = DROPPED;
bit o_crash, done;
byte k, alive, waiting;             /* counters of atomic steps */

inline count() {
    alive = 0; waiting = 0;
    for (k : 1 .. HOLDERS) {
        if
        :: g_grant[k] != NONE -> alive++
        :: else
        fi;
        if
        :: j_train[k] != NONE -> waiting++
        :: else
        fi
    }
}

inline scrub(h) { g_taint[h] = NONE; region_move(g_region[h], RF_SCRUBBED) }

inline fence(h) {
#ifndef WITHOUT_KEY_ERASURE
    g_grant[h] = NONE;
#endif
    region_move(g_region[h], RF_FENCED)
}

/* A record sealed under an epoch of holder h's arrives: only the key that is alive opens it, and only into its own region. */
inline accept(h, epoch) {
    if
    :: g_grant[h] == epoch ->
        assert(g_region[h] != R_FENCED && g_region[h] != R_IN_USE);   /* L5: what waits is written to by nobody, its own holder included */
        if
        :: g_region[h] == R_GRANTED ->
            count();
            assert(alive == 1);                                        /* L1: one holder has the GPU */
            region_move(g_region[h], RF_CHUNK); region_move(g_region[h], RF_CLOSED);
            assert(g_taint[h] == NONE);                                /* L7 */
            g_taint[h] = epoch; looked = 0
        :: else                                                        /* consumed */
        fi
    :: else
    fi
}

inline bring(h) { accept(h, offered[h]); reported[h] = offered[h] }

#define due(h) (offered[h] != NONE && reported[h] != offered[h] && g_grant[h] == offered[h])

active proctype Holders() {
end:
    do
    :: atomic { due(1) -> bring(1) }
    :: atomic { due(2) -> bring(2) }
    :: atomic { due(3) -> bring(3) }
    :: atomic { evil > 0 && offered[MALLORY] != NONE -> evil--;
        if
        :: accept(MALLORY, offered[MALLORY])                           /* late, or again */
        :: reported[MALLORY] = offered[MALLORY]                        /* it lies about having written */
        fi }
    od
}

active proctype Fate() {
end:
    do
    :: atomic { crashes > 0 && !done && !o_crash -> crashes--; o_crash = 1 }
    :: atomic { vetoes > 0 && !done -> vetoes--;
        if
        :: j_gone[1] = 1
        :: j_gone[3] = 1
        fi }
    :: atomic { resets > 0 && g_session && !done -> resets--;
        g_session = 0; g_model = 0; g_committed = 0; g_compute = 0; looked = 0;
        for (k : 1 .. HOLDERS) { g_region[k] = R_CLEAN; g_grant[k] = NONE; g_taint[k] = NONE } }
    od
}

/* The visit ends without having had effect: the move is in the table, whichever machine it has reached; its stop comes again. */
inline abandon(h, visit_fact, training_fact) {
    if
    :: j_train[h] != NONE -> training_move(j_train[h], training_fact)
    :: else -> visit_move(j_phase[h], visit_fact)
    fi;
    j_phase[h] = NONE; j_train[h] = NONE
}

inline all_trained(fact) {
    for (k : 1 .. HOLDERS) {
        if
        :: j_train[k] != NONE -> training_move(j_train[k], fact)
        :: else
        fi
    }
}

/* closed or rejected, all in one commit */
inline end_all(fact) {
    all_trained(fact);
    for (k : 1 .. HOLDERS) { j_phase[k] = NONE; j_train[k] = NONE };
    j_round++
}

inline scrub_parts() {
    for (k : 1 .. HOLDERS) {
        if
#ifdef WITHOUT_EVERY_SCRUB
        :: j_train[k] != NONE && k != HOLDERS -> scrub(k)
#else
        :: j_train[k] != NONE -> scrub(k)
#endif
        :: else
        fi
    };
    g_compute = 0
}

proctype Orchestrator() {
    byte h;
    bit whole;
again:
    {
    /* ---- a life: every key dies, whatever waits is scrubbed */
    atomic {
        for (k : 1 .. HOLDERS) {
            g_grant[k] = NONE;
#ifndef WITHOUT_LETTING_GO
            g_taint[k] = NONE; g_region[k] = R_CLEAN
#endif
        };
        g_compute = 0; g_model = g_committed; looked = 0;
        if
        :: g_high > j_high -> j_high = g_high
        :: else
        fi };
    atomic {
        count(); whole = (waiting > 0);
        for (k : 1 .. HOLDERS) {
            if
            :: j_train[k] != NONE && j_train[k] != T_VALIDATED -> whole = 0
            :: else
            fi
        };
        if
        :: g_session && g_committed == j_learnt + 1 ->
            assert(whole);                                             /* or the journal could not explain the model */
            all_trained(TF_SCRUBBED); end_all(TF_CLOSED); j_learnt++
        :: g_session && g_committed != j_learnt + 1 ->
            assert(g_committed == j_learnt);
            for (k : 1 .. HOLDERS) {
                if
                :: j_phase[k] != NONE -> abandon(k, VF_RECALLED, TF_RECALLED)
                :: else
                fi
            }
        :: !g_session ->
            for (k : 1 .. HOLDERS) {
                if
                :: j_phase[k] != NONE -> abandon(k, VF_LOST, TF_LOST)
                :: else
                fi
            };
            j_learnt = j_kept; j_round = j_kept_round;
            g_session = 1; g_model = j_kept; g_committed = j_kept
        fi };

    /* ---- round after round */
    do
    :: j_round == ROUNDS ->
        atomic { assert(g_session -> g_committed == j_learnt : 1);     /* each tour that was kept took effect once, as a whole */
            if
            :: !g_session -> goto again
            :: else -> done = 1
            fi };
        break
    :: j_round < ROUNDS ->
        h = 1;
        do
        :: h > HOLDERS -> break
        :: h <= HOLDERS && (j_gone[h] || j_train[h] != NONE) -> h++    /* it takes no part, or waits already */
        :: h <= HOLDERS && !j_gone[h] && j_train[h] == NONE ->
            atomic { j_phase[h] = V_PLANNED; j_epoch[h] = j_high + 1; j_high = j_high + 1 };
            atomic {
                if
                :: !g_session -> goto again
                :: else
                fi;
                count();
                assert(alive == 0 && g_region[h] == R_CLEAN && g_taint[h] == NONE);   /* L1, L2, L7 */
                region_move(g_region[h], RF_GRANTED); g_grant[h] = j_epoch[h]; g_high = j_epoch[h]; looked = 0 };
            atomic { visit_move(j_phase[h], VF_GRANTED) };
            atomic { visit_move(j_phase[h], VF_OFFERED); offered[h] = j_epoch[h] };
            if
            :: reported[h] == j_epoch[h]
            :: atomic { timeouts > 0 -> timeouts-- }
            :: timeout                                                  /* nothing else can happen: the lease ends */
            fi;
            if
            :: reported[h] == j_epoch[h] -> atomic { visit_move(j_phase[h], VF_REPORTED) }
            :: else
            fi;
            atomic {
                if
                :: !g_session -> goto again
                :: else -> fence(h)
                fi };
            if
            :: atomic { g_session && j_phase[h] == V_RETURNED && g_region[h] == R_FENCED ->
                count(); looked = (alive == 0);
                visit_move(j_phase[h], VF_FENCED) };
                atomic {
                    if
                    :: !g_session -> goto again
                    :: else
                    fi;
                    assert(g_model == g_committed && g_committed == j_learnt);        /* L8, after every fence */
                    visit_move(j_phase[h], VF_VERIFIED); j_train[h] = T_LOADED };     /* it waits */
                h++
            :: atomic { !(g_session && j_phase[h] == V_RETURNED && g_region[h] == R_FENCED) ->
                if
                :: !g_session -> goto again
                :: else -> scrub(h); abandon(h, VF_RECALLED, TF_RECALLED);
#ifndef WITHOUT_LOOKING_AGAIN
                    count(); looked = (alive == 0); g_model = g_committed      /* the tour may be trained on without another fence */
#endif
                fi }                                                    /* its stop comes again */
            fi
        od;
        /* ---- who vetoed while its records waited is let go of; then the GPU trains on all the others, or nobody is left */
        atomic {
            if
            :: !g_session -> goto again
            :: else
            fi;
#ifndef WITHOUT_VETOED_LET_GO
            for (k : 1 .. HOLDERS) {
                if
                :: j_gone[k] && j_train[k] != NONE -> scrub(k); abandon(k, VF_RECALLED, TF_RECALLED)
                :: else
                fi
            };
#endif
            count();
            if
            :: waiting == 0 -> j_round++                                /* below the quorum the session would end */
            :: else ->
                assert(looked);                                         /* L3 */
                assert(g_model == g_committed && g_committed == j_learnt);
                for (k : 1 .. HOLDERS) {
                    assert(g_grant[k] == NONE);                         /* L1, L3: every key is dead */
                    if
                    :: j_train[k] != NONE ->
                        assert(!j_gone[k]);                             /* nobody is trained on against its veto */
                        assert(g_taint[k] == j_epoch[k]);               /* what was verified is what lies there */
                        region_move(g_region[k], RF_TRAIN); region_move(g_region[k], RF_TRAINED)
                    :: else -> assert(g_taint[k] == NONE)
                    fi
                };
                g_compute = 1; g_model++
            fi };
        if
        :: waiting == 0 -> skip
        :: waiting > 0 ->
            if
            :: atomic { all_trained(TF_TRAINED) };
#ifndef WITHOUT_COMMIT_BEFORE_ACT
               atomic { all_trained(TF_VALIDATED) };
#endif
               atomic {
                   if
                   :: !g_session -> goto again
                   :: else -> g_committed = g_model; scrub_parts()
                   fi };
#ifdef WITHOUT_COMMIT_BEFORE_ACT
               atomic { all_trained(TF_VALIDATED) };
#endif
               atomic { all_trained(TF_SCRUBBED); end_all(TF_CLOSED); j_learnt++ };
               if
               :: atomic { g_session -> j_kept = j_learnt; j_kept_round = j_round }   /* a checkpoint, between tours alone */
               :: true
               fi
            :: atomic { dropped > 0 -> dropped--;                       /* not kept: rolled back as one, nobody's fault, not tried again */
                   if
                   :: !g_session -> goto again
                   :: else -> g_model = g_committed; scrub_parts()
                   fi };
               atomic { end_all(TF_REJECTED) }
            fi
        fi
    od;
    goto finished
    } unless { atomic { o_crash -> o_crash = 0 }; goto again };
finished:
    atomic {                                                            /* the session is over, and the GPU holds nothing of anybody's */
        for (k : 1 .. HOLDERS) { assert(g_taint[k] == NONE && g_grant[k] == NONE && g_region[k] == R_CLEAN) };
        assert(!g_compute) }
}

init { atomic { run Orchestrator() } }

ltl progress { <> done }
