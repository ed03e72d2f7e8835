/* The specification of design 4 and 6, checked exhaustively by spin within stated bounds: sessions, visits, epochs, lives, crashes,
   and an attacker who owns the MUX, the network and one holder. The moves of visits, training phases and the GPU's region are not
   written here: tables.pml is made from the code's tables, and an illegal move is an assertion violation.

   Knows no key and no byte. A key generation is a number, a record is "the record sealed under epoch e", whose plaintext lies in the
   region is `g_taint`, the model is the number of visits it has learnt from. Run: make spec.

   MODE     PAPER (the visit key commands the whole GPU), SCOPED (it writes into the granted region), DIRECT (no command path: ciphertext
            waits in staging until the orchestrator's command fetches it)
   Bounds   VISITS, CRASHES (of the orchestrator), RESTARTS (of holders), RESETS (of the GPU), TIMEOUTS (leases that end), EVIL (acts of the
            malicious holder 2 and of the platform), REPLAYS (old command frames that the platform sends again)
   WITHOUT_… takes one defence away; the check must then fail, or it would prove nothing.
*/
#include "tables.pml"

#define PAPER  0
#define SCOPED 1
#define DIRECT 2
#ifndef MODE
#define MODE SCOPED
#endif
#ifndef VISITS
#define VISITS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef RESTARTS
#define RESTARTS 1
#endif
#ifndef RESETS
#define RESETS 1
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 1
#endif
#ifndef EVIL
#define EVIL 1
#endif
#ifndef REPLAYS
#define REPLAYS 1
#endif
#define HOLDERS 2
/* every attempt burns two numbers: the visit's and its fence's; what ends a life may burn those of the visit planned behind it, too, and
   where that visit is planned before this one is back, so may what ends a visit */
#if MODE == SCOPED
#define EPOCHS (2 * (VISITS * (1 + RESETS) + 2 * (CRASHES + RESETS + REPLAYS + RESTARTS + TIMEOUTS + EVIL)) + 1)
#else
#define EPOCHS (2 * (VISITS * (1 + RESETS) + 2 * (CRASHES + RESETS + REPLAYS) + RESTARTS + TIMEOUTS + EVIL) + 1)
#endif
#define NONE 0
#define HOLDER_OF(visit) (1 + (visit) % HOLDERS)
#define MALLORY 2

/* ------------------------------------------------------------------ the GPU (one region, one engine) */
byte g_channel, g_last;             /* number of the DHE whose keys its command channel has; the last frame number it took there */
byte handshakes;                    /* every DHE gives keys of its own, whatever life number it opens */
byte g_high;                        /* highest epoch ever drawn; survives lives, not a wipe */
byte g_grant[EPOCHS];               /* whose grant of an epoch is alive, or NONE */
byte g_open;                        /* epoch that was drawn for a visit and has no grant yet: its key opens nothing; or NONE */
byte g_region = R_CLEAN;
byte g_taint, g_compute;            /* whose records lie in the region; in the compute process */
byte g_model, g_committed;          /* visits learnt by the working copy; by the committed copy */
bit g_session, g_tampered, g_planted;
byte g_worked;                      /* visit that was trained and not yet settled, plus one */

/* ------------------------------------------------------------------ what is on the wire, for ever */
bit wire[EPOCHS];                   /* the sealed record of an epoch was sent: anybody may deliver it, any time, any number of times */
bit reported[EPOCHS];               /* the holder's report, repeated until it is read */
byte offered[HOLDERS + 1];          /* newest epoch offered to a holder, NONE if none */
byte lock[EPOCHS];                  /* life of the holder for whose one-time key this epoch's visit key was sealed */

/* ------------------------------------------------------------------ ghosts: what the laws speak of */
bit dead[EPOCHS];                   /* fenced, or of an older life */
bit sealed_under[EPOCHS];           /* a holder has sealed a record under this key */
bit taken[EPOCHS];                  /* the GPU has accepted that record */
byte whose[EPOCHS];                 /* for whom the orchestrator planned this epoch */
bit looked;                         /* the GPU was measured since the last time a holder's key was alive */
bit done, failed;

/* ------------------------------------------------------------------ what fate and attackers have left */
byte crashes = CRASHES, restarts = RESTARTS, resets = RESETS, timeouts = TIMEOUTS, evil = EVIL, replays = REPLAYS;
bit o_crash;
byte h_life[HOLDERS + 1] = 1;

/* ------------------------------------------------------------------ the command channel: one frame in flight, one old one in the attacker's hands */
mtype = { cmd_place, cmd_open, cmd_grant, cmd_fetch, cmd_fence, cmd_measure, cmd_train, cmd_settle, cmd_undo, cmd_export };
mtype f_cmd, z_cmd;
byte f_channel, f_n, f_a, f_b, z_channel, z_n, z_a, z_b;
byte k, alive;                      /* counters of atomic steps */
bit f_sent, f_answered, f_refused, z_kept;

inline scrub_region() {
#ifndef WITHOUT_SCRUB
    g_taint = NONE; g_compute = NONE;
#endif
    region_move(g_region, RF_SCRUBBED)
}

inline kill(epoch) {
    dead[epoch] = 1;
    if
    :: g_open == epoch -> g_open = NONE
    :: else
    fi;
    if
#ifndef WITHOUT_KEY_ERASURE
    :: g_grant[epoch] != NONE -> g_grant[epoch] = NONE; region_move(g_region, RF_FENCED)
#else
    :: g_grant[epoch] != NONE -> region_move(g_region, RF_FENCED)
#endif
    :: else
    fi
}

inline kill_all() {
    for (k : 1 .. (EPOCHS - 1)) {
        if
        :: k <= g_high -> kill(k)
        :: else
        fi
    }
}

/* A key that opens traffic is alive. */
inline any_alive() {
    alive = 0;
    for (k : 1 .. (EPOCHS - 1)) {
        if
        :: g_grant[k] != NONE -> alive++
        :: else
        fi
    }
}

/* A record arrives. What the GPU checks stands in the guard; the laws stand in the assertions. */
inline accept(epoch) {
    if
    :: g_grant[epoch] != NONE && (g_region == R_GRANTED || g_region == R_FILLING) && !taken[epoch] ->
        assert(!dead[epoch]);                       /* L5: a key ever shown is used for nothing after its visit */
        any_alive();
        assert(alive == 1);                         /* L1: nobody else can write there at this moment */
        assert(g_grant[epoch] == whose[epoch]);     /* and it is the party for whom the key was drawn */
        taken[epoch] = 1;                           /* L4: at most once per key, by the guard */
        if
        :: g_region == R_GRANTED -> region_move(g_region, RF_CHUNK)
        :: else
        fi;
        region_move(g_region, RF_CLOSED);
        assert(g_taint == NONE);                    /* L7: nothing of an earlier visit lies beneath */
        g_taint = g_grant[epoch]; looked = 0
    :: else                                          /* refused: nothing changes */
    fi
}

/* a: epoch, b: holder */
inline install(a, b) {
    assert(g_taint == NONE && g_compute == NONE);    /* L2: no grant without the scrub of the last use; L7 */
    assert(!dead[a] && g_grant[a] == NONE);          /* L5: nor does an epoch that was opened ahead come back, or get a second grant */
    region_move(g_region, RF_GRANTED);
    g_high = a; g_open = NONE; g_grant[a] = b; looked = 0
}

/* Execute one command. Every precondition is the GPU's own; a refusal changes nothing. */
inline execute(cmd, a, b) {
    f_refused = 0;
    if
    :: cmd == cmd_place ->
        if
        :: !g_session -> g_session = 1; g_model = a; g_committed = a; g_tampered = 0; g_planted = 0
        :: else -> f_refused = 1
        fi
    :: cmd == cmd_open ->                            /* a: epoch: its key can be told to its holder, and opens nothing before the grant */
        if
        :: g_session && a > g_high ->
            assert(g_open == NONE);                  /* the orchestrator leaves none behind: it would be nobody's to kill */
            g_high = a; g_open = a
        :: else -> f_refused = 1
        fi
    :: cmd == cmd_grant ->                           /* a: epoch, opened now or open without a grant; b: holder */
        if
        :: g_session && (a > g_high || a == g_open) && g_region == R_CLEAN -> install(a, b)
#ifdef WITHOUT_CLEAN_BEFORE_INSTALL
        :: g_session && a == g_open && g_region != R_CLEAN -> install(a, b)
#endif
        :: else -> f_refused = 1
        fi
    :: cmd == cmd_fetch ->                           /* DIRECT: a: epoch whose ciphertext waits in staging */
        if
        :: wire[a] -> accept(a)
        :: else -> f_refused = 1
        fi
    :: cmd == cmd_fence ->                           /* a: the epoch to kill, b: the new one */
        if
        :: g_session && a <= g_high && b > g_high ->
            kill(a); g_high = b
        :: else -> f_refused = 1
        fi
    :: cmd == cmd_measure ->
        if
        :: g_session -> g_planted = 0; any_alive(); looked = (alive == 0)   /* the program is uploaded again before it is looked at */
        :: else -> f_refused = 1
        fi
    :: cmd == cmd_train ->                           /* a: visit, b: whether the orchestrator found everything whole */
        if
        :: g_session && g_region == R_FENCED && g_worked == NONE ->
            any_alive();
            assert(alive == 0 && looked);            /* L3: fence, drain, upload, verify, and only then train */
            assert(!g_tampered && !g_planted);       /* L8: the model is the committed one; no foreign code runs */
            assert(g_model == g_committed && g_committed == a);
            region_move(g_region, RF_TRAIN); g_compute = g_taint;
            region_move(g_region, RF_TRAINED);
            g_model = g_model + 1; g_worked = a + 1
        :: else -> f_refused = 1
        fi
    :: cmd == cmd_settle ->                          /* commit, scrub, statement; b: the epoch of the visit that follows at once, granted then */
        if
        :: g_session && g_worked == a + 1 ->
            g_committed = g_model; g_worked = NONE; scrub_region();
            if
            :: b == NONE
            :: b != NONE && (b > g_high || b == g_open) && g_region == R_CLEAN -> install(b, HOLDER_OF(a + 1))
            :: else -> f_refused = 1
            fi
        :: else -> f_refused = 1
        fi
    :: cmd == cmd_undo ->                            /* roll back, scrub */
        if
        :: g_session -> g_model = g_committed; g_tampered = 0; g_worked = NONE; scrub_region()
        :: else -> f_refused = 1
        fi
    :: cmd == cmd_export ->                          /* a: visits that the journal has closed */
        if
        :: g_session -> assert(g_committed == a && g_taint == NONE && g_compute == NONE)
        :: else -> f_refused = 1
        fi
    fi
}

/* A handshake: without the resume proof it wipes, with it everything but the model goes. Not a numbered frame. */
inline open_life(resume) {
    kill_all();
    g_taint = NONE; g_compute = NONE; g_region = R_CLEAN; g_worked = NONE; handshakes++; g_channel = handshakes; g_last = 0;
    if
    :: resume -> g_model = g_committed; g_tampered = 0
    :: else -> g_session = 0; g_model = 0; g_committed = 0; g_tampered = 0; g_planted = 0
    fi
}

/* The GPU takes a frame under its own channel's keys with the next number; the last one again is answered from memory, without effect. */
inline take(cmd, channel, n, a, b, answered) {
    if
#ifdef WITHOUT_FRAME_NUMBERS
    :: channel == g_channel && n <= g_last + 1 ->
#else
    :: channel == g_channel && n == g_last + 1 ->
#endif
        g_last = n; execute(cmd, a, b); answered = 1
    :: channel == g_channel && n == g_last -> answered = 1
    :: else -> answered = 0
    fi
}

/* ------------------------------------------------------------------ platform and network: deliver, repeat, keep for later, route anywhere */
active proctype Network() {
    byte e; bit ignored; bit refused_then;
end:
    do
    :: atomic { f_sent && !f_answered ->
        take(f_cmd, f_channel, f_n, f_a, f_b, f_answered);
        if
        :: !f_answered -> f_answered = 1; f_refused = 1      /* not under its keys: the life is over */
        :: else
        fi }
    :: atomic { replays > 0 && f_sent && !z_kept ->
        z_kept = 1; z_cmd = f_cmd; z_channel = f_channel; z_n = f_n; z_a = f_a; z_b = f_b }
    :: atomic { replays > 0 && z_kept ->
        replays--; z_kept = 0; refused_then = f_refused;
        take(z_cmd, z_channel, z_n, z_a, z_b, ignored);
        f_refused = refused_then; ignored = 0; refused_then = 0; z_cmd = 0; z_channel = 0; z_n = 0; z_a = 0; z_b = 0; alive = 0 }
    /* Any sealed record, to the GPU, on any port: the MUX is the platform's and decides nothing. */
    :: atomic { MODE != DIRECT && wire[g_high] && !taken[g_high] && g_grant[g_high] != NONE -> accept(g_high) }
    :: atomic { MODE != DIRECT && evil > 0 ->
        evil--;
        select(e : 1 .. (EPOCHS - 1));
        if
        :: wire[e] -> accept(e)
        :: else
        fi;
        e = 0; alive = 0 }                                   /* what is read no more is forgotten: the same states, counted once */
    od
}

/* ------------------------------------------------------------------ a holder: seals once per epoch, never for an old one, never without the key of this life */
proctype Holder(byte me) {
    byte highest, e;
end:
    do
#ifdef WITHOUT_HIGHEST_EPOCH
    :: atomic { offered[me] > highest || (offered[me] != NONE && evil > 0) ->
        if
        :: offered[me] == highest -> evil--
        :: else
        fi;
        highest = offered[me]; e = highest;
#else
    :: atomic { offered[me] > highest ->
        highest = offered[me]; e = highest;
#endif
        if
        :: lock[e] == h_life[me] ->
            assert(!sealed_under[e]);                /* L4: no honest party uses a (key, IV) twice */
            sealed_under[e] = 1; wire[e] = 1
        :: else                                      /* sealed for a key that a restart has erased: it asks for a new channel */
        fi }
    :: atomic { highest != NONE && taken[highest] && !reported[highest] -> reported[highest] = 1 }
    /* A malicious holder writes with any key it was ever shown, whenever it likes. */
    :: atomic { me == MALLORY && evil > 0 && highest != NONE ->
        evil--;
        if
        :: MODE == PAPER && g_grant[highest] == me -> g_tampered = 1     /* the key commands the whole GPU */
        :: MODE == PAPER && g_grant[highest] == me -> g_planted = 1
        :: reported[highest] = 1                                                    /* it lies about having written */
        :: accept(highest)                                                          /* and writes late, or again */
        fi }
    od
}

/* ------------------------------------------------------------------ fate */
active proctype Fate() {
end:
    do
    :: atomic { crashes > 0 && !done && !failed && !o_crash -> crashes--; o_crash = 1 }
    :: atomic { restarts > 0 && !done -> restarts--; h_life[1]++ }
    :: atomic { restarts > 0 && !done -> restarts--; h_life[2]++ }
    :: atomic { resets > 0 && g_session && !done ->
        resets--;
        kill_all();
        g_session = 0; g_channel = NONE; g_last = 0; g_model = 0; g_committed = 0; g_region = R_CLEAN; g_taint = NONE; g_compute = NONE;
        g_worked = NONE; g_tampered = 0; g_planted = 0 }
    od
}

/* ------------------------------------------------------------------ the orchestrator: j_… is its journal and survives, the rest dies with it */
byte j_visit;                       /* visits closed: the position */
byte j_phase = V_PLANNED, j_train = NONE;
bit j_open;                         /* a visit is planned and not ended */
byte j_epoch, j_high;
byte j_next;                        /* epoch of the visit that is planned behind the current one: while that is away (SCOPED), or with its
                                       verdict; NONE if none. What was done for it ahead dies with the life: */
bit j_opened, j_said, j_granted;    /* its epoch is open, its key was offered, its grant is installed */
byte j_kept;                        /* position of the newest sealed checkpoint */
bit j_placed;

inline call(cmd, a, b) {
    atomic { f_cmd = cmd; f_channel = o_channel; f_n = o_n + 1; f_a = a; f_b = b; f_answered = 0; f_refused = 0; f_sent = 1 };
    f_answered;
    atomic { f_sent = 0; f_cmd = 0; f_channel = 0; f_n = 0; f_a = 0; f_b = 0; f_answered = 0; alive = 0; o_n = o_n + 1;
        if
        :: f_refused -> f_refused = 0; goto broken
        :: else
        fi }
}

inline reserve(epoch, visit) { epoch = j_high + 1; j_high = j_high + 2; whose[epoch] = HOLDER_OF(visit) }
inline fact(f) { atomic { visit_move(j_phase, f) } }
inline phase_fact(f) { atomic { training_move(j_train, f) } }

inline verified() { atomic { visit_move(j_phase, VF_VERIFIED); j_train = T_LOADED } }    /* one fact, two tables */
/* The verdict, and the plan of what follows at once, in one commit. */
inline validated() {
    atomic { training_move(j_train, TF_VALIDATED);
        if
        :: j_next == NONE && j_visit + 1 < VISITS -> reserve(j_next, j_visit + 1)
        :: true
        fi }
}

inline offer(epoch, visit) { lock[epoch] = h_life[HOLDER_OF(visit)]; offered[HOLDER_OF(visit)] = epoch }

/* Sealing ahead: the next holder gets its key while the GPU trains, for the current visit was found whole. Now, later, or in its turn. */
inline offer_ahead() {
    if
    :: atomic { j_opened && !j_said -> offer(j_next, j_visit + 1); j_said = 1 }
    :: true
    fi
}

/* The current visit ends otherwise than planned: the one ahead goes first, and its stop is planned anew. Its holder may have its key. */
inline drop_ahead() {
    if
    :: j_opened -> call(cmd_fence, j_next, j_next + 1)
    :: else                                          /* the GPU has not heard of it: a fact in the journal */
    fi;
    atomic { j_next = NONE; j_opened = 0; j_said = 0 }
}

/* Ways out: the move is in the table, whichever machine the visit has reached. */
inline abandon(visit_fact, training_fact) {
    atomic {
        if
        :: j_train != NONE -> training_move(j_train, training_fact)
        :: else -> visit_move(j_phase, visit_fact)
        fi;
        j_open = 0; j_train = NONE }
}

proctype Orchestrator() {
    byte o_channel, o_n;
again:
    {
    /* ---- a life: the GPU's answer decides what happened, the journal what comes next */
    atomic { o_n = 0;
        if
        :: g_session && j_placed -> open_life(1)
        :: else -> open_life(0)
        fi;
        o_channel = g_channel; j_next = NONE; j_opened = 0; j_said = 0; j_granted = 0;        /* what follows is planned anew */
        if
        :: g_high > j_high -> j_high = g_high
        :: else
        fi };
    if
    :: g_session && g_committed == j_visit ->
        if
        :: j_open -> abandon(VF_RECALLED, TF_RECALLED)
        :: else
        fi
    :: g_session && g_committed == j_visit + 1 && j_open && j_train == T_VALIDATED ->
        atomic { training_move(j_train, TF_SCRUBBED); training_move(j_train, TF_CLOSED); j_open = 0; j_train = NONE; j_visit++ }
    :: g_session && g_committed != j_visit && !(g_committed == j_visit + 1 && j_open && j_train == T_VALIDATED) ->
        failed = 1; assert(false)                    /* a model the journal cannot explain */
    :: !g_session ->
        if
        :: j_open -> abandon(VF_LOST, TF_LOST)
        :: else
        fi;
        atomic { j_visit = j_kept };                 /* restored from the checkpoint; visits since are repeated */
        call(cmd_place, j_visit, 0);
        atomic { j_placed = 1 }
    fi;
    call(cmd_measure, 0, 0);

    /* ---- visit after visit */
visits:
    do
    :: j_visit == VISITS ->
        call(cmd_export, VISITS, 0);                             /* each visit took effect once, in order */
        atomic { done = 1 };                                     /* committed before the GPU is told to forget the model */
        break
    :: j_visit < VISITS ->
        if
        :: j_next != NONE -> atomic { j_phase = V_PLANNED; j_train = NONE; j_open = 1; j_epoch = j_next; j_next = NONE };
            if
            :: j_granted                                          /* by the frame that settled the visit before it */
            :: !j_granted -> call(cmd_grant, j_epoch, HOLDER_OF(j_visit))    /* something came between them; its epoch may be open */
            :: j_said && !j_granted && lock[j_epoch] != h_life[HOLDER_OF(j_visit)] ->    /* never: its holder is gone; the region is clean */
                call(cmd_fence, j_epoch, j_epoch + 1);
                atomic { abandon(VF_RECALLED, TF_RECALLED); j_opened = 0; j_said = 0 };
                goto visits
            fi
        :: else ->
            atomic { j_phase = V_PLANNED; j_train = NONE; j_open = 1; reserve(j_epoch, j_visit) };
            call(cmd_grant, j_epoch, HOLDER_OF(j_visit))
        fi;
        fact(VF_GRANTED);
        fact(VF_OFFERED);
        atomic {
            if
            :: j_said                                             /* while the visit before it was trained on */
            :: else -> offer(j_epoch, j_visit)
            fi;
            j_opened = 0; j_said = 0; j_granted = 0;
            if                                                    /* the visit behind it, durable before this one's fence leaves; or not yet */
            :: MODE == SCOPED && j_visit + 1 < VISITS -> reserve(j_next, j_visit + 1)
            :: true
            fi };
        /* provision, report; or the lease ends; or the holder came back with a new key */
        if
        :: MODE == DIRECT && wire[j_epoch] -> call(cmd_fetch, j_epoch, 0)
        :: MODE != DIRECT
        :: atomic { timeouts > 0 -> timeouts-- }
        :: lock[j_epoch] != h_life[HOLDER_OF(j_visit)]
        :: timeout                                                /* nothing else can happen: the lease ends */
        fi;
        if
        :: reported[j_epoch]
        :: atomic { timeouts > 0 -> timeouts-- }
        :: lock[j_epoch] != h_life[HOLDER_OF(j_visit)]
        :: timeout                                                /* nothing else can happen: the lease ends */
        fi;
        if
        :: reported[j_epoch] ->
            fact(VF_REPORTED);
#ifdef WITHOUT_FENCE_FIRST
            call(cmd_measure, 0, 0);
#endif
            call(cmd_fence, j_epoch, j_epoch + 1);
            if
            :: j_next != NONE -> call(cmd_open, j_next, 0); j_opened = 1
            :: else                                               /* none: the verdict may plan it, as ever */
            fi;
            fact(VF_FENCED);
            if
            :: g_region != R_FENCED ->                            /* reported, but not published: the holder is to blame */
                drop_ahead(); call(cmd_undo, 0, 0); abandon(VF_RECALLED, TF_RECALLED)
            :: else ->
#ifndef WITHOUT_FENCE_FIRST
                call(cmd_measure, 0, 0);
#endif
                if
#ifndef WITHOUT_VERIFY
                :: g_tampered || g_planted || g_model != g_committed ->
                    drop_ahead(); call(cmd_undo, 0, 0); abandon(VF_QUARANTINED, TF_QUARANTINED)
                :: else ->
#else
                :: true ->
#endif
                    if                                            /* it becomes durable before the training is asked for, or only meanwhile */
                    :: verified(); offer_ahead(); call(cmd_train, j_visit, 1)
                    :: call(cmd_train, j_visit, 1); verified()
                    fi;
                    offer_ahead();
#ifdef WITHOUT_CLEAN_BEFORE_INSTALL
                    if                                            /* asked too early, as an orchestrator that errs might */
                    :: j_opened -> call(cmd_grant, j_next, HOLDER_OF(j_visit + 1))
                    :: true
                    fi;
#endif
                    if
                    :: phase_fact(TF_TRAINED);
#ifndef WITHOUT_COMMIT_BEFORE_ACT
                       validated();
#endif
                       if
                       :: call(cmd_settle, j_visit, j_next); j_granted = (j_next != NONE)
                       :: j_opened -> call(cmd_settle, j_visit, NONE)    /* something is to come between them */
                       fi;
#ifdef WITHOUT_COMMIT_BEFORE_ACT
                       validated();
#endif
                       atomic { training_move(j_train, TF_SCRUBBED); training_move(j_train, TF_CLOSED);
                                j_open = 0; j_train = NONE; j_visit++ };
                       if
                       :: atomic { !j_granted -> j_kept = j_visit }        /* a checkpoint is sealed now and then; the next key may be out, its grant is not */
                       :: true
                       fi
                    :: atomic { evil > 0 -> evil-- };             /* the update is poisoned: rejected, rolled back bit for bit */
                       drop_ahead();
                       call(cmd_undo, 0, 0);
                       atomic { training_move(j_train, TF_REJECTED); j_open = 0; j_train = NONE }
                    fi
                fi
            fi
        :: else ->
            drop_ahead();                                         /* its epoch would have been opened with the fence: never was */
            call(cmd_fence, j_epoch, j_epoch + 1);
            call(cmd_undo, 0, 0);
            abandon(VF_RECALLED, TF_RECALLED)
        fi
    od;
    goto finished;
broken:
    goto again
    } unless { atomic { o_crash -> o_crash = 0; f_sent = 0; f_answered = 0; f_refused = 0; f_cmd = 0; f_channel = 0; f_n = 0; f_a = 0; f_b = 0 } ; goto again };
finished:
    skip
}

init { atomic { run Holder(1); run Holder(2); run Orchestrator() } }

ltl progress { <> done }
