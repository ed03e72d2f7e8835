/* Made from the code's protocol tables by docs/spec/tables.py. Not to be edited: an illegal move is an assertion violation. */

#define V_AWAY 1
#define V_FENCED 2
#define V_GRANTED 3
#define V_LOST 4
#define V_PLANNED 5
#define V_QUARANTINED 6
#define V_RECALLED 7
#define V_RETURNED 8
#define V_VERIFIED 9
#define VF_FENCED 1
#define VF_GRANTED 2
#define VF_LOST 3
#define VF_OFFERED 4
#define VF_QUARANTINED 5
#define VF_RECALLED 6
#define VF_REPORTED 7
#define VF_VERIFIED 8
inline visit_move(phase, fact) {
    if
    :: phase == V_PLANNED && fact == VF_GRANTED -> phase = V_GRANTED
    :: phase == V_GRANTED && fact == VF_OFFERED -> phase = V_AWAY
    :: phase == V_AWAY && fact == VF_REPORTED -> phase = V_RETURNED
    :: phase == V_RETURNED && fact == VF_FENCED -> phase = V_FENCED
    :: phase == V_FENCED && fact == VF_VERIFIED -> phase = V_VERIFIED
    :: phase == V_PLANNED && fact == VF_RECALLED -> phase = V_RECALLED
    :: phase == V_GRANTED && fact == VF_RECALLED -> phase = V_RECALLED
    :: phase == V_AWAY && fact == VF_RECALLED -> phase = V_RECALLED
    :: phase == V_RETURNED && fact == VF_RECALLED -> phase = V_RECALLED
    :: phase == V_FENCED && fact == VF_RECALLED -> phase = V_RECALLED
    :: phase == V_PLANNED && fact == VF_LOST -> phase = V_LOST
    :: phase == V_GRANTED && fact == VF_LOST -> phase = V_LOST
    :: phase == V_AWAY && fact == VF_LOST -> phase = V_LOST
    :: phase == V_RETURNED && fact == VF_LOST -> phase = V_LOST
    :: phase == V_FENCED && fact == VF_LOST -> phase = V_LOST
    :: phase == V_FENCED && fact == VF_QUARANTINED -> phase = V_QUARANTINED
    :: else -> assert(false)
    fi
}

#define T_CLOSED 1
#define T_LOADED 2
#define T_LOST 3
#define T_QUARANTINED 4
#define T_RECALLED 5
#define T_REJECTED 6
#define T_SCRUBBED 7
#define T_TRAINED 8
#define T_VALIDATED 9
#define TF_CLOSED 1
#define TF_LOST 2
#define TF_QUARANTINED 3
#define TF_RECALLED 4
#define TF_REJECTED 5
#define TF_SCRUBBED 6
#define TF_TRAINED 7
#define TF_VALIDATED 8
inline training_move(phase, fact) {
    if
    :: phase == T_LOADED && fact == TF_TRAINED -> phase = T_TRAINED
    :: phase == T_TRAINED && fact == TF_VALIDATED -> phase = T_VALIDATED
    :: phase == T_VALIDATED && fact == TF_SCRUBBED -> phase = T_SCRUBBED
    :: phase == T_SCRUBBED && fact == TF_CLOSED -> phase = T_CLOSED
    :: phase == T_LOADED && fact == TF_REJECTED -> phase = T_REJECTED
    :: phase == T_TRAINED && fact == TF_REJECTED -> phase = T_REJECTED
    :: phase == T_LOADED && fact == TF_RECALLED -> phase = T_RECALLED
    :: phase == T_TRAINED && fact == TF_RECALLED -> phase = T_RECALLED
    :: phase == T_VALIDATED && fact == TF_RECALLED -> phase = T_RECALLED
    :: phase == T_SCRUBBED && fact == TF_RECALLED -> phase = T_RECALLED
    :: phase == T_LOADED && fact == TF_LOST -> phase = T_LOST
    :: phase == T_TRAINED && fact == TF_LOST -> phase = T_LOST
    :: phase == T_VALIDATED && fact == TF_LOST -> phase = T_LOST
    :: phase == T_SCRUBBED && fact == TF_LOST -> phase = T_LOST
    :: phase == T_LOADED && fact == TF_QUARANTINED -> phase = T_QUARANTINED
    :: phase == T_TRAINED && fact == TF_QUARANTINED -> phase = T_QUARANTINED
    :: else -> assert(false)
    fi
}

#define R_CLEAN 1
#define R_DIRTY 2
#define R_FENCED 3
#define R_FILLING 4
#define R_GRANTED 5
#define R_IN_USE 6
#define R_PUBLISHED 7
#define RF_CHUNK 1
#define RF_CLOSED 2
#define RF_EVALUATE 3
#define RF_EVALUATED 4
#define RF_FAULT 5
#define RF_FENCED 6
#define RF_GRANTED 7
#define RF_SCRUBBED 8
#define RF_TRAIN 9
#define RF_TRAINED 10
inline region_move(phase, fact) {
    if
    :: phase == R_CLEAN && fact == RF_GRANTED -> phase = R_GRANTED
    :: phase == R_GRANTED && fact == RF_CHUNK -> phase = R_FILLING
    :: phase == R_FILLING && fact == RF_CHUNK -> phase = R_FILLING
    :: phase == R_FILLING && fact == RF_CLOSED -> phase = R_PUBLISHED
    :: phase == R_GRANTED && fact == RF_FAULT -> phase = R_DIRTY
    :: phase == R_FILLING && fact == RF_FAULT -> phase = R_DIRTY
    :: phase == R_GRANTED && fact == RF_FENCED -> phase = R_DIRTY
    :: phase == R_FILLING && fact == RF_FENCED -> phase = R_DIRTY
    :: phase == R_PUBLISHED && fact == RF_FENCED -> phase = R_FENCED
    :: phase == R_DIRTY && fact == RF_FENCED -> phase = R_DIRTY
    :: phase == R_FENCED && fact == RF_TRAIN -> phase = R_IN_USE
    :: phase == R_IN_USE && fact == RF_TRAINED -> phase = R_DIRTY
    :: phase == R_FENCED && fact == RF_EVALUATE -> phase = R_IN_USE
    :: phase == R_IN_USE && fact == RF_EVALUATED -> phase = R_FENCED
    :: phase == R_FENCED && fact == RF_SCRUBBED -> phase = R_CLEAN
    :: phase == R_DIRTY && fact == RF_SCRUBBED -> phase = R_CLEAN
    :: phase == R_CLEAN && fact == RF_SCRUBBED -> phase = R_CLEAN
    :: else -> assert(false)
    fi
}
